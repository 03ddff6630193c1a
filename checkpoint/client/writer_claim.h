// A run's hold on the folder of its checkpoints: two runs that write into one folder, or a run that
// begins before checkpoints which lie there, would replace and remove each other's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/real_path.h"

namespace trireme::checkpoint {

// A damaged checkpoint that has got another name.
struct SetAside {
  std::string folder;  // what it is named now
  absl::Status reason;
};

// How long a claim waits for another process to let go of the folder.
struct ClaimWait {
  std::chrono::milliseconds longest{0};  // 0: it is refused at once
  std::chrono::milliseconds pause{200};  // between two looks
  // Called, if given, with each refusal that is to be waited out; false ends the wait.
  std::function<bool(const absl::Status& held)> go_on;
};

// Held by rank 0 as long as the run may write. Released by the destructor and by the death of the
// process. Each claim has an epoch of its own, which `.lock` then holds: what is left of an older
// attempt sees there that its time is over (CheckEpoch), also on file systems whose locks do not
// reach from node to node. What it was about to do when it last looked is taken away from it.
class WriterClaim {
 public:
  // Makes `root` if it is missing and locks it; what is then written below it has a way that is on
  // the disk. From when it returns nobody of an older epoch publishes or removes anything there,
  // wherever he stands still until then. Aborted, saying what to do, if another process holds the
  // folder all through `wait`, which passes: it may be of a node that was lost, until the file
  // system gives its locks up. PermissionDenied or Unavailable, at once, if it cannot be written.
  // `links`: as in reader.h.
  static absl::StatusOr<WriterClaim> Take(const std::string& root,
                                          base::Links links = base::Links::kFollow,
                                          const ClaimWait& wait = {});

  // Says that the run goes on after `step`. Checkpoints of later steps that are damaged
  // are renamed, never removed, so that none is taken for good and the run can come to those steps
  // again; they are given. `judged`: what is known to be damaged already; of others the headers
  // alone are read, as this is one rank and the bytes are for all of them to judge (FoldersAfter).
  // FailedPrecondition, saying what to do, and nothing renamed, if one is good; other errors if one
  // cannot be judged.
  absl::StatusOr<std::vector<SetAside>> BeginAfter(uint64_t step,
                                                   std::span<const Skipped> judged = {});

  // The run has written its last: what it and older ones have left hidden in the folder goes, as
  // far as nobody keeps it. FailedPrecondition as CheckEpoch, and all is left as it is; else the
  // disk's.
  absl::Status EmptyHidden() const;

  Epoch epoch() const { return epoch_; }

  WriterClaim(WriterClaim&& other) noexcept;
  WriterClaim& operator=(WriterClaim&& other) noexcept;
  ~WriterClaim();

 private:
  WriterClaim(std::string root, base::Links links, int fd)
      : root_(std::move(root)), links_(links), fd_(fd) {}
  static absl::StatusOr<WriterClaim> TakeNow(const std::string& root, base::Links links);
  absl::Status BeginEpoch();
  absl::Status TakeHidden() const;
  std::string root_;
  base::Links links_;
  int fd_;
  Epoch epoch_ = Epoch::kNone;
};

// Whether another process holds `root` at this moment; false where that cannot be told.
bool IsClaimed(const std::string& root);

// The checkpoints of `root` that are of steps after `step`, by name alone, the newest first.
absl::StatusOr<std::vector<std::string>> FoldersAfter(const std::string& root, uint64_t step);

// FailedPrecondition if `epoch` is no longer that of the newest claim of `root`; kNone is always
// ok.
absl::Status CheckEpoch(const std::string& root, Epoch epoch);

// Moves what `is_due` says of the names in `root` into RemovedFolder, and that on the disk, to be
// emptied by the caller: nothing that is emptied looks whole after a loss of power. The first error
// of a name, when all others are moved. FailedPrecondition as CheckEpoch, wherever a newer epoch
// begins meanwhile; else the disk's.
absl::Status TakeAway(const std::string& root, Epoch epoch,
                      const std::function<bool(const std::string& name)>& is_due);
// `root`/.EPOCH.removed.
std::string RemovedFolder(const std::string& root, Epoch epoch);

// Gives a damaged checkpoint of `root` a name that nobody takes for one, step-N.damaged, for good,
// and returns its new folder. By way of RemovedFolder, made before CheckEpoch, which a newer epoch
// takes away: to that one it may be good.
absl::StatusOr<std::string> SetAsideDamaged(const std::string& root, uint64_t step, Epoch epoch);

}  // namespace trireme::checkpoint
