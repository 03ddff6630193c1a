// Reads checkpoints at any layout: each rank names the shards it wants, and gets them from whatever
// files hold them. Nothing is handed out before its checksum has been compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/client/restore.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/state.h"
#include "runtime/base/real_path.h"

namespace trireme::checkpoint {

// An opened checkpoint. Const methods may be called from several threads. Blocks on the disk.
class Checkpoint {
 public:
  const CheckpointInfo& info() const { return manifest_.info; }
  const Manifest& manifest() const { return manifest_; }
  const std::string& folder() const { return folder_; }
  base::Links links() const { return links_; }
  // The checksum of the manifest, as text: equal for readers that read the same checkpoint.
  const std::string& guard() const { return guard_; }

  // RestoreFrom its files. Reads only the 64 KiB pieces that hold something wanted, each once, and
  // compares their checksums before use. DataLoss: checksum, truncated or missing file; names file,
  // tensor and piece.
  absl::Status Restore(std::span<const StateShard> targets,
                       const RestoreOptions& options = {}) const;

 private:
  friend absl::StatusOr<Checkpoint> OpenManifest(const std::string& folder, base::Links links);
  std::string folder_;
  base::Links links_ = base::Links::kFollow;
  std::string guard_;
  Manifest manifest_;
};

// Reads and checks the manifest and compares the files' sizes; no tensor data is read. With
// Links::kRefuse, here and below, folders are named by absolute paths, and a link on the way to
// anything that is read is an error: for folders in which others may put what they like.
absl::StatusOr<Checkpoint> Open(const std::string& folder,
                                base::Links links = base::Links::kFollow);

// The same without the files' sizes: for one of many ranks, which together look at each file once
// (VerifyPart), not each at all of them.
absl::StatusOr<Checkpoint> OpenManifest(const std::string& folder,
                                        base::Links links = base::Links::kFollow);

// Whether an error of Open, Verify and the like says that the checkpoint is damaged for good
// (DataLoss, or NotFound: no manifest), other than a disk or a right that may come back, or a
// newer format.
bool IsDamage(const absl::Status& status);

// Whether a checkpoint whose name was just read is no longer there: its run keeps only so many, and
// has a newer one. What failed with it then says nothing.
bool IsGone(const std::string& folder);

// Opens the newest `most` checkpoints under `root`, the newest first, and hands each on, or why it
// does not open. What its run removes meanwhile is left out; where that is all there was, a newer
// one has come, and is looked for. NotFound: no `root`; Unavailable: it cannot be read to its end,
// or as FindNewest.
absl::Status VisitCheckpoints(
    const std::string& root, size_t most, base::Links links,
    const std::function<void(const std::string& folder, const absl::StatusOr<Checkpoint>& opened)>&
        visit);

// Why a folder that looks like a checkpoint was passed over.
struct Skipped {
  std::string folder;
  absl::Status reason;
};

// The folder of the newest checkpoint under `root` that opens, of steps below `below`. NotFound if
// there is none (or no `root`); Unavailable if its run removes them faster than they can be looked
// at, here and below. Newer ones that do not open are listed in `skipped` if it is given.
absl::StatusOr<std::string> FindNewest(const std::string& root,
                                       std::vector<Skipped>* skipped = nullptr,
                                       uint64_t below = UINT64_MAX,
                                       base::Links links = base::Links::kFollow);

// The same, for going on from it: a newer one that cannot be judged (IsDamage) is an error, as it
// may be good and is not to be gone back behind. `skipped`: what is known to be damaged, to which
// the newer ones that do not open are added, also those before an error; where there are any and
// none opens, DataLoss of all.
absl::StatusOr<std::string> FindNewestUndamaged(const std::string& root,
                                                std::vector<Skipped>* skipped,
                                                uint64_t below = UINT64_MAX,
                                                base::Links links = base::Links::kFollow);

// The same, but every byte of it has been read and compared with its checksum; `skipped` is set to
// those that are not intact. NotFound: there is no checkpoint at all; DataLoss: none of those there
// is intact, and why.
absl::StatusOr<std::string> FindNewestIntact(const std::string& root,
                                             std::vector<Skipped>* skipped = nullptr,
                                             base::Links links = base::Links::kFollow);

// "no checkpoint here is intact", and why each is not. DataLoss.
absl::Status NoneIntact(const std::string& root, std::span<const Skipped> damaged);

// Reads every byte and compares every checksum. The error lists the first faults of each file.
absl::Status Verify(const std::string& folder, base::Links links = base::Links::kFollow);

// One of `count` parts of a checkpoint, of about equal bytes; together they are all of it.
struct Part {
  int index = 0;  // from 0
  int count = 1;
};
// Verify of one part, whose bytes read (headers may be read by two) are added to `bytes_read` if it
// is given. For ranks that share the work, however many wrote it.
absl::Status VerifyPart(const Checkpoint& checkpoint, Part part, uint64_t* bytes_read = nullptr);

}  // namespace trireme::checkpoint
