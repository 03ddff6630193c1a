// SnapshotReader: a rank's snapshot file beside the rank, for whoever keeps parity of it or writes
// it to a disk (docs/formats/snapshot.md, "Pins"). It holds no lock and no rank ever waits for it;
// what it reads holds for a version that it has pinned in time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/client/snapshot_map.h"

namespace trireme::checkpoint {

// Thread: as SnapshotMap; one that pins. One process pins in a file.
class SnapshotReader final : public SnapshotMap {
 public:
  // Of this process's user, in a folder that is his alone. NotFound: there is none. DataLoss,
  // FailedPrecondition: those of ParseSnapshotHeader, naming the file. PermissionDenied: others may
  // write to it. The pins that stand there go on standing.
  static absl::StatusOr<std::unique_ptr<SnapshotReader>> Open(const std::string& path);

  // Whether no rank holds it, just now: whoever wrote to it has died, or has not begun.
  bool IsUnheld() const;
  // Whether the name is still this file's: a rank of another layout makes another.
  bool IsNamed() const;
  // The text of its parts, checked by whoever parses it (slot_manifest.h).
  std::string manifest() const;

  // From here on `version` is to stay, or to stay when it comes, in place of what that pin said.
  // False: its rank may have begun the version after it already, and this one be gone; the pin
  // stands as told all the same. 0: none. `pin` below PinsThatCount(shape().slots).
  bool Pin(uint32_t pin, uint64_t version);
  // Where a version is whole. None: nowhere, or not yet.
  std::optional<uint32_t> SlotOf(uint64_t version) const;
  // Of each piece of the version in the slot.
  std::span<const std::byte> piece_sums(uint32_t slot) const { return sums_of(slot); }

 private:
  SnapshotReader() = default;
};

}  // namespace trireme::checkpoint
