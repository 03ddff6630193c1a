// One folder at a time by openat with O_NOFOLLOW.
#include "runtime/base/real_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace trireme::base {
namespace {

bool IsLink(int folder, const char* name) {
  struct stat about {};
  return fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(about.st_mode);
}

}  // namespace

int OpenWithoutLinks(const std::string& path, int flags) {
  const auto refuse = [](int error) {
    errno = error;
    return -1;
  };
  if (path.empty() || path[0] != '/') return refuse(EINVAL);
  int folder = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  const std::filesystem::path names = std::filesystem::path(path).relative_path();
  for (auto name = names.begin(); name != names.end() && folder >= 0; ++name) {
    const bool last = std::next(name) == names.end();
    int next = -1;
    int error = EINVAL;
    if (*name != "..") {
      next = openat(folder, name->empty() ? "." : name->c_str(),
                    (last ? flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC);
      error = errno;
      // Of a link O_DIRECTORY says that it is none.
      if (next < 0 && error == ENOTDIR && IsLink(folder, name->c_str())) error = ELOOP;
    }
    close(folder);
    if (next < 0) return refuse(error);
    folder = next;
  }
  return folder;
}

int OpenToRead(const std::string& path, Links links) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  const int fd =
      links == Links::kFollow ? open(path.c_str(), kFlags) : OpenWithoutLinks(path, kFlags);
  struct stat about {};
  if (fd < 0 || (fstat(fd, &about) == 0 && S_ISREG(about.st_mode))) return fd;
  close(fd);
  errno = EINVAL;
  return -1;
}

absl::Status CheckWithoutLinks(const std::string& path) {
  const int fd = OpenWithoutLinks(path, O_PATH | O_DIRECTORY);
  const int error = errno;
  if (fd >= 0) close(fd);
  if (fd >= 0 || error == ENOENT) return absl::OkStatus();
  if (error != ELOOP) return absl::ErrnoToStatus(error, path);
  return absl::FailedPreconditionError(absl::StrCat(
      path,
      ": a link is on the way, though the job was submitted with the real path; "
      "put the folder back, or submit the job anew (all nodes must have it by the same "
      "real path)"));
}

}  // namespace trireme::base
