// link(2) decides who claims a folder; rename(2) makes the verdict appear.
#include "coordinator/launcher/guard_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "coordinator/launcher/process_identity.h"

namespace trireme::launcher {
namespace {

constexpr size_t kExitBytes = 64;

// errno, 0 if all was written and is on the disk.
int WriteDurably(int fd, const std::string& text) {
  errno = 0;
  const ssize_t written = pwrite(fd, text.data(), text.size(), 0);
  if (written == static_cast<ssize_t>(text.size())) return fsync(fd) == 0 ? 0 : errno;
  return errno != 0 ? errno : ENOSPC;
}

std::string ExitText(const std::string& json) {
  std::string text = json;
  text.resize(kExitBytes - 1, ' ');
  return text + "\n";
}

}  // namespace

int ClaimFolder(int folder_fd) {
  const ProcessIdentity self = IdentityOf(getpid());
  const std::string name = "guard.json." + std::to_string(self.pid);
  const std::string text = "{\"pid\": " + std::to_string(self.pid) +
                           ", \"start_ticks\": " + std::to_string(self.start_ticks) +
                           ", \"boot_id\": \"" + self.boot_id + "\"}\n";
  const int fd =
      openat(folder_fd, name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return errno;
  int error = WriteDurably(fd, text);
  if (error == 0 && linkat(folder_fd, name.c_str(), folder_fd, "guard.json", 0) != 0) {
    error = errno;
    // A server's answer may get lost after the work is done: the count of links tells.
    struct stat about {};
    if (fstat(fd, &about) == 0 && about.st_nlink == 2) error = 0;
  }
  unlinkat(folder_fd, name.c_str(), 0);
  close(fd);
  // What ran here is to be known after a power cut too; a disk that cannot say so starts all the
  // same.
  if (error == 0) fsync(folder_fd);
  return error;
}

ExitFile::ExitFile(int folder_fd)
    : folder_fd_(folder_fd),
      fd_(openat(folder_fd, "exit.partial", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (fd_ >= 0) WriteDurably(fd_, ExitText(""));
}

void ExitFile::Write(int exit_code) const {
  if (fd_ < 0) return;
  if (WriteDurably(fd_, ExitText("{\"exit_code\": " + std::to_string(exit_code) + "}")) != 0)
    return;
  renameat(folder_fd_, "exit.partial", folder_fd_, "exit");
  fsync(folder_fd_);
}

}  // namespace trireme::launcher
