// SnapshotFile: the file in which a rank's training state is, in memory that outlives the rank
// (docs/formats/snapshot.md). Whoever holds it locked is the only one that trusts it, and that
// writes to it. Bytes only: what lies where in a slot is the caller's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/client/snapshot_map.h"

namespace trireme::checkpoint {

struct SnapshotFileOptions {
  std::string root = "/dev/shm";  // a file system in memory
  SnapshotShape shape;            // without manifest_bytes
  std::string manifest;
  // For the rank before this one, which has died or is about to.
  std::chrono::milliseconds lock_wait{10000};
};

inline constexpr std::string_view kSnapshotFileEnding = ".snapshot";
// rank-RRRRR-LLLLLLLLLLLLLLLL-S.snapshot, of its rank, layout and number of slots: files of two
// layouts do not stand in each other's way.
std::string SnapshotFileName(const SnapshotShape& shape);
// Its parts: of a rank whatever its layout, and of a layout whatever the rank.
std::string SnapshotNameBegin(uint32_t rank);
std::string SnapshotNameEnd(uint64_t layout, uint32_t slots);

// `root`/trireme-UID-KEY, of this process's user.
std::string SnapshotFolder(const std::string& root, const SnapshotKey& key);

// Thread: one; of what SnapshotMap has and data() any number.
class SnapshotFile final : public SnapshotMap {
 public:
  // The rank's file, if one is there whose shape and manifest are these, locked; else a new one in
  // its place, all zeros. One that is still locked when lock_wait has passed, whatever its shape,
  // loses its name and nothing else: whoever holds it may write to it for as long as he lives.
  // Blocks for lock_wait at most. Errors: of a folder that others can enter PermissionDenied;
  // ResourceExhausted, with the bytes that it takes, where there is no room for it; AlreadyExists
  // where another goes on making the same one; else by errno, and then what was there is there
  // still. Its end unlocks the file, which stays.
  static absl::StatusOr<std::unique_ptr<SnapshotFile>> Open(const SnapshotFileOptions& options);

  // Whether it was there before: only then can it hold a version.
  bool found() const { return found_; }
  // All slots, from places.slot_bytes to places.slot_bytes; aligned to 2 MiB.
  std::span<std::byte> data() const {
    return {base_ + places_.data, static_cast<size_t>(places_.slot_bytes * shape_.slots)};
  }
  std::span<std::byte> data_of(uint32_t slot) const {
    return {base_ + places_.data_of(slot), static_cast<size_t>(shape_.slot_bytes)};
  }

  // Which the step after the version in `state` may write (snapshot_pins.h).
  uint32_t NextSlot(uint32_t state) const;
  // As those of SnapshotSlot; `sums`: one for each piece. `record.sums_crc` is set here.
  absl::Status Begin(uint32_t slot, uint64_t version);
  absl::Status Stage(uint32_t slot, SnapshotRecord record, std::span<const uint64_t> sums);
  void Clear(uint32_t slot);

  // Takes away those of the folder's files that nobody holds and that are of another layout. Blocks
  // while their memory is given back, a second for some GiB; may run beside all else but the end.
  void RemoveOthers() const;
  // For a run that needs it no more: takes away its name, those of the folder's files that nobody
  // holds, and the folder, if it is empty then. The memory stays mapped as long as this lives. Who
  // has taken the name meanwhile keeps it.
  void Remove();

 private:
  SnapshotFile() = default;
  // NotFound: its folder was removed meanwhile.
  absl::Status OpenIn(const std::string& path, const SnapshotFileOptions& options,
                      const SnapshotShape& shape, std::chrono::steady_clock::time_point end);
  absl::Status MapAll(int fd);
  SnapshotPage record_of(uint32_t slot) const { return page(places_.record(slot)); }

  bool found_ = false;
};

}  // namespace trireme::checkpoint
