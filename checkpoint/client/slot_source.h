// The memory of all ranks of a run on this machine as a source of the mover (restore.h): what an
// attempt at another layout goes on from (docs/adr/0027).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/client/restore.h"
#include "checkpoint/client/snapshot_reader.h"
#include "checkpoint/format/slot_manifest.h"

namespace trireme::checkpoint {

// Files of all ranks of one layout, by rank, none of which anybody writes to: each was found
// without a holder.
using SnapshotSet = std::vector<std::shared_ptr<const SnapshotReader>>;

// Those in `folder` (SnapshotFolder) that are complete, but for the layout `own` with so many
// slots. A holder of a file is waited for, for `wait` in all; a set of which one is held longer, or
// a file is damaged or not there, is left out, and `passed_over` says why if it is given. None is
// no error. Blocks for `wait` at most.
std::vector<SnapshotSet> FindSnapshotSets(const std::string& folder, uint64_t own, uint32_t slots,
                                          std::chrono::milliseconds wait,
                                          std::vector<std::string>* passed_over = nullptr);

// What all files of a set hold whole, records alike but for their sums; the newest first.
std::vector<SnapshotRecord> StagedByAll(const SnapshotSet& set);

class SlotSource final : public StateSource {
 public:
  // `version`: of StagedByAll. DataLoss: a file's parts are damaged, or a version is not there.
  static absl::StatusOr<std::unique_ptr<SlotSource>> Make(SnapshotSet set,
                                                          const SnapshotRecord& version);

  const std::string& where() const override { return where_; }
  std::vector<StoredShard> shards() const override;
  absl::StatusOr<std::unique_ptr<StoredPart>> OpenPart(uint32_t part) const override;
  // After what was read: DataLoss if somebody has begun to write to it meanwhile.
  absl::Status CheckUnchanged() const;

 private:
  struct Held {
    std::shared_ptr<const SnapshotReader> file;
    uint32_t slot = 0;
    SnapshotRecord record;
    std::vector<SlotPart> parts;
  };
  SlotSource() = default;

  std::string where_;
  std::vector<Held> ranks_;
};

}  // namespace trireme::checkpoint
