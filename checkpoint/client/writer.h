// Writes checkpoints, all or nothing: every rank writes one file into a hidden partial folder, and
// one rename makes it a checkpoint. The caller puts its own barriers between the steps:
//   rank 0: Prepare | every rank: WriteRank | every rank: ReadBack | rank 0: Commit, Prune
// Whatever fails or dies in between, older checkpoints stay and no half one is ever seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/state.h"
#include "runtime/base/real_path.h"
#include "runtime/layout/layout.h"
#include "runtime/tensor/dtype.h"

namespace trireme::checkpoint {

// Stateless and thread-safe: ranks may be threads. Every call blocks on the disk. Errors:
// Unavailable for those of the disk, also a full one or quota, InvalidArgument for shards or infos
// that make no checkpoint, FailedPrecondition for an `epoch` that is over (WriterClaim; kNone:
// nobody claims this folder).
class CheckpointWriter {
 public:
  // Makes the partial folder of `step` under `root` (which is made too), empty: what an earlier
  // try of this epoch has left is removed. Gives its path, equal to PartialFolder(root, step,
  // epoch).
  static absl::StatusOr<std::string> Prepare(const std::string& root, uint64_t step,
                                             Epoch epoch = Epoch::kNone);

  // Writes the shards of `rank` (0-based) with their checksums into the partial folder and waits
  // until they are on the disk. `data` of each shard holds shard.elements() elements. A failure
  // removes what this rank wrote.
  static absl::Status WriteRank(const std::string& partial_folder, int rank,
                                std::span<const StateShard> shards);

  // Reads what `rank` has written, past the memory that this machine has of it, and compares
  // every checksum. DataLoss: the disk does not give back what it was given. Best called on
  // another node than that rank's, whose memory holds nothing of it. The bytes read are added to
  // `bytes_read` if it is given.
  static absl::Status ReadBack(const std::string& partial_folder, int rank,
                               uint64_t* bytes_read = nullptr);

  // Joins what the `info.ranks` ranks wrote to one manifest, refuses unless the shards hold every
  // element of every tensor exactly once, and renames the folder to its final name, whose path it
  // gives. That the epoch lasts is looked at right before the rename, and one that ends after that
  // look renames nothing (WriterClaim::Take). AlreadyExists if there is something of that name,
  // which stays as it is.
  static absl::StatusOr<std::string> Commit(const std::string& root, uint64_t step,
                                            const CheckpointInfo& info, Epoch epoch = Epoch::kNone);

  // Removes this epoch's partial folder of `step`, if there is one; for a save that is given up.
  static absl::Status Abandon(const std::string& root, uint64_t step, Epoch epoch = Epoch::kNone);

  struct PruneOptions {
    int keep = 1;         // at least 1
    uint64_t newest = 0;  // the step just committed, whose every file has been read back
    base::Links links = base::Links::kFollow;
    Epoch epoch = Epoch::kNone;
  };
  // Of the checkpoints of steps up to `newest` keeps the last `keep` that open, and removes older
  // ones and partial folders. Nothing is removed where `newest` itself does not open. Broken ones
  // newer than what is kept stay, for inspection; what lies above `newest` is not this run's and
  // stays too.
  static absl::Status Prune(const std::string& root, const PruneOptions& options);
};

}  // namespace trireme::checkpoint
