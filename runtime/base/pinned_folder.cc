#include "runtime/base/pinned_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "runtime/base/durable.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::base {

absl::StatusOr<PinnedFolder> PinnedFolder::Open(const std::string& path, Links links) {
  const int follow = links == Links::kRefuse ? O_NOFOLLOW : 0;
  PinnedFolder folder;
  folder.fd_ = open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | follow);
  if (folder.fd_ >= 0 && fstat(folder.fd_, &folder.about_) == 0) return folder;
  return ErrnoStatus(errno, "cannot open the folder " + path);
}

PinnedFolder::~PinnedFolder() {
  if (fd_ >= 0) close(fd_);
}

std::string PinnedFolder::PathOf(const std::string& name) const {
  return Text("/proc/self/fd/", fd_, '/', name);
}

absl::StatusOr<PinnedFolder> OpenOwnFolder(const std::string& path) {
  ASSIGN_OR_RETURN(PinnedFolder folder, PinnedFolder::Open(path, Links::kRefuse));
  const struct stat& about = folder.about();
  if (about.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        Text("the folder ", path, " belongs to user ", about.st_uid, ", not to ", geteuid()));
  }
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(
        Text("the folder ", path, " may be written to by others; chmod go-w ", path));
  }
  return folder;
}

}  // namespace trireme::base
