// A snapshot file as it lies in memory (docs/formats/snapshot.md): what its records say, and
// whether its bytes are what was summed when they were made. For its rank and for readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/snapshot.h"
#include "checkpoint/format/snapshot_pins.h"

namespace trireme::checkpoint {

// Thread: any number, if they take into account what a writer that lives does meanwhile.
class SnapshotMap {
 public:
  virtual ~SnapshotMap();
  SnapshotMap(const SnapshotMap&) = delete;
  SnapshotMap& operator=(const SnapshotMap&) = delete;

  const std::string& path() const { return path_; }
  const SnapshotShape& shape() const { return shape_; }
  // 64 KiB each, the last may be shorter.
  size_t pieces() const;
  std::span<const std::byte> bytes_of(uint32_t slot) const {
    return {base_ + places_.data_of(slot), static_cast<size_t>(shape_.slot_bytes)};
  }

  // What a slot says is whole in it, as far as its record and the sums themselves are undamaged.
  // Its data is for Verify.
  std::optional<SnapshotRecord> Staged(uint32_t slot) const;
  // Of each slot, without a look at its guard.
  std::vector<SlotState> slots() const;
  // The pieces from `begin` to before `end` against their sums: DataLoss naming file, slot and the
  // first piece that differs.
  absl::Status Verify(uint32_t slot, size_t begin, size_t end) const;
  PinnedVersions pins() const { return ReadPins(page(places_.pins)); }

 protected:
  enum class Access { kAll, kRead };

  SnapshotMap() = default;
  // Takes `fd`, of a file of this shape. kRead: but for the pins its memory cannot be written to.
  absl::Status Map(int fd, Access access);
  std::span<std::byte, kSnapshotPageBytes> page(uint64_t offset) const {
    return std::span<std::byte, kSnapshotPageBytes>(base_ + offset, kSnapshotPageBytes);
  }
  std::span<std::byte> sums_of(uint32_t slot) const;

  std::string path_;
  SnapshotShape shape_;
  SnapshotPlaces places_;
  int fd_ = -1;
  std::byte* base_ = nullptr;  // of the file's bytes
};

}  // namespace trireme::checkpoint
