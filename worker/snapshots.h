// Snapshots of one rank (docs/adr/0024): the file in which its slots of training state are, in
// memory that outlives the rank, and the version in them that a run goes on from.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "checkpoint/client/slot_source.h"
#include "checkpoint/client/snapshot_file.h"
#include "runtime/comm/agreement.h"
#include "runtime/engine/snapshot_keeper.h"

namespace trireme::worker {

struct SnapshotOptions {
  std::string run_folder;                      // with the key of its snapshots, which rank 0 draws
  std::string root = "/dev/shm";               // a file system in memory
  uint32_t attempt = 0;                        // 0: none; a number is drawn then
  std::chrono::milliseconds lock_wait{10000};  // for the rank before this one, which may be dying
  std::chrono::seconds idle{600};              // RoomOptions::idle
};

// What of a run a record says beside what the engine knows.
struct SnapshotRun {
  uint64_t hash = 0;  // of what a version must be of to be gone on from
  uint64_t samples_per_step = 0;
  double validation_loss = 0;  // the newest
  uint64_t validation_step = 0;
};

// A version in memory.
struct HeldVersion {
  uint32_t slot = 0;  // of this rank's file; or
  checkpoint::SnapshotRecord record;
  // in the memory of another layout's ranks on this machine. Not verified: its reader does that.
  std::shared_ptr<const checkpoint::SlotSource> elsewhere;
};

// Which versions may be gone on from.
struct WantedVersion {
  uint64_t hash = 0;           // of the run (SnapshotRun)
  uint64_t most_steps = 0;     // none after this one
  uint32_t first_attempt = 0;  // staged by this one or a later one; 0: by any, also uncounted ones
  uint64_t before = 0;         // not this one nor any after it; 0: no such bound
};

// Threads: one; what the engine calls on its device's thread may run beside set_run.
class Snapshots final : public engine::SnapshotKeeper {
 public:
  // `ranks` outlives it.
  Snapshots(comm::Agreement& ranks, SnapshotOptions options);
  ~Snapshots() override;

  // Collective: the key is shared, all have their file or none goes on. ResourceExhausted: the
  // memory of a machine can never hold those of its ranks; with base::kNoRoomHere as its exit code:
  // others have taken too much of it.
  absl::StatusOr<tensor::HostPages> Pages(const engine::SnapshotSlots& slots) override;
  uint64_t BytesThere() const override;
  uint32_t NextSlot(uint32_t state) const override { return file_->NextSlot(state); }
  void Clear(uint32_t slot) override;
  void Begin(uint32_t slot, uint64_t step) override;
  absl::Status Stage(uint32_t slot, const engine::StagedStep& step,
                     std::span<const uint64_t> sums) override;

  // Of the versions that are staged from here on.
  void set_run(const SnapshotRun& run);
  // The newest wanted version that every rank holds whole; each has compared all its bytes with
  // their sums, by so many threads. Or, if it is newer, one of ranks of another layout that all of
  // this run's find whole. None: there is none, or no memory was asked for. Collective; `wanted`
  // alike on all ranks.
  absl::StatusOr<std::optional<HeldVersion>> Choose(const WantedVersion& wanted, int threads);
  // It is chosen no more. On all ranks, of a version that was chosen.
  void PassOver(const HeldVersion& version);
  // Before the first step from there: no other slot holds a version any more, on any rank, but
  // older ones that are pinned. Collective.
  absl::Status KeepOnly(const HeldVersion& version);
  // The run needs none any more. The state stays mapped.
  void Remove();
  // A start that ends before its first version, in a file that it has made itself: that has
  // nothing.
  void RemoveIfUnused();

 private:
  checkpoint::SnapshotShape ShapeOf(const engine::SnapshotSlots& slots,
                                    const checkpoint::SnapshotKey& key, uint64_t layout) const;
  absl::Status Open(const checkpoint::SnapshotShape& shape, const std::string& manifest);
  absl::StatusOr<checkpoint::SnapshotKey> ShareKey();
  void MarkTime();
  // Of other layouts, the newest that this rank finds and that no rank has passed over.
  std::optional<checkpoint::SnapshotRecord> NewestElsewhere(const WantedVersion& wanted);
  // Whether all ranks find that one; then as Choose has it. Collective.
  absl::StatusOr<std::optional<HeldVersion>> TakeElsewhere(
      const std::optional<checkpoint::SnapshotRecord>& newest, uint64_t newer_than);
  // Collective.
  absl::Status CheckMachines(uint64_t file_bytes, const std::string& folder,
                             const std::string& name_end);

  comm::Agreement& ranks_;
  const SnapshotOptions options_;
  uint64_t attempt_ = 0;                            // alike on all ranks
  std::shared_ptr<checkpoint::SnapshotFile> file_;  // null: no memory was asked for
  std::atomic<bool> used_{false};                   // a version may be in it
  std::chrono::steady_clock::time_point marked_;    // when its time was set
  // Of other layouts, until one is gone on from; none: they have not been looked for.
  std::optional<std::vector<checkpoint::SnapshotSet>> others_;
  std::vector<uint64_t> passed_over_;  // of their versions
  int begun_ = 0;                      // steps, up to two
  std::thread remover_;                // of their files
  absl::Mutex mutex_;
  SnapshotRun run_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::worker
