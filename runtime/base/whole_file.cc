#include "runtime/base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runtime/base/text.h"

namespace trireme::base {
namespace {

bool WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// A file system that cannot do that has its own order.
void SyncFolderOf(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, std::string_view content, mode_t mode) {
  const std::string beside = path + ".partial";
  const auto failed = [&] {
    const int error = errno;
    unlink(beside.c_str());
    return error == ENOSPC || error == EDQUOT
               ? absl::ResourceExhaustedError(Text("the disk is full: cannot write ", path))
               : absl::ErrnoToStatus(error, Text("cannot write ", path));
  };
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return failed();
  const bool written = WriteAll(fd, content) && fsync(fd) == 0;
  if (close(fd) != 0 || !written || std::rename(beside.c_str(), path.c_str()) != 0) return failed();
  SyncFolderOf(path);
  return absl::OkStatus();
}

}  // namespace trireme::base
