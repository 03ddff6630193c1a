// The lock is flock's on the file `.lock`: the kernel releases it with the last descriptor, so a
// killed run leaves nothing that holds the next one up.
#include "checkpoint/client/writer_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "checkpoint/client/disk.h"
#include "checkpoint/client/reader.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkpoint {

using base::Text;

absl::StatusOr<WriterClaim> WriterClaim::Take(const std::string& root, uint64_t step,
                                              base::Links links) {
  RETURN_IF_ERROR(MakeFolders(root));
  const std::string path = root + "/.lock";
  const int no_link = links == base::Links::kFollow ? 0 : O_NOFOLLOW;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | no_link | O_CLOEXEC, 0644);
  if (fd < 0) return DiskError(path, "cannot be created", errno);
  WriterClaim claim(fd);
  // A file system without locks cannot say who writes; the run goes on as it would without them.
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::FailedPreconditionError(
        Text(root, ": another run writes its checkpoints here; wait for it, or give this one a ",
             "folder of its own by checkpoint.directory"));
  }
  const absl::StatusOr<std::string> newest = FindNewest(root, nullptr, UINT64_MAX, links);
  if (!newest.ok()) return claim;
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Open(*newest, links));
  if (checkpoint.info().step <= step) return claim;
  return absl::FailedPreconditionError(Text(
      root, ": holds a checkpoint of step ", checkpoint.info().step, ", but this run begins ",
      "at step ", step, " and would overwrite and remove such. Continue from it with --resume ",
      "auto, or give this run a folder of its own (a new run folder, or ",
      "checkpoint.directory)"));
}

WriterClaim::WriterClaim(WriterClaim&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

WriterClaim& WriterClaim::operator=(WriterClaim&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

WriterClaim::~WriterClaim() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace trireme::checkpoint
