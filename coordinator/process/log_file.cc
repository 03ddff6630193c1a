// dup2 is atomic: each write goes whole to the old file or to the new one.
#include "coordinator/process/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace trireme::coordinator {

absl::StatusOr<LogFile> LogFile::Open(const LogFileOptions& options) {
  LogFile file(options);
  if (const absl::Status begun = file.Begin(options.path); !begun.ok()) return begun;
  return file;
}

absl::Status LogFile::Begin(const std::string& path) const {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open the log " + path);
  for (const int wanted : options_.fds) dup2(fd, wanted);
  close(fd);
  return absl::OkStatus();
}

absl::Status LogFile::Turn() {
  struct stat about {};
  if (fstat(options_.fds[0], &about) != 0 || about.st_size < options_.most_bytes) {
    return absl::OkStatus();
  }
  for (int number = options_.most_files - 1; number > 0; --number) {
    const std::string from =
        number == 1 ? options_.path : fmt::format("{}.{}", options_.path, number - 1);
    const std::string to = fmt::format("{}.{}", options_.path, number);
    if (rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, fmt::format("cannot rename {} to {}", from, to));
    }
  }
  return Begin(options_.path);
}

}  // namespace trireme::coordinator
