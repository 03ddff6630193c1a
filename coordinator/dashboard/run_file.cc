#include "coordinator/dashboard/run_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace trireme::dashboard {

RunFile::RunFile(int fd) : fd_(fd) {
  struct stat about {};
  if (fstat(fd_, &about) != 0) return;
  size_ = about.st_size;
  identity_ = fmt::format("{}-{}", about.st_dev, about.st_ino);
}

RunFile::RunFile(RunFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      identity_(std::move(other.identity_)) {}

RunFile::~RunFile() {
  if (fd_ >= 0) close(fd_);
}

std::string RunFile::Read(int64_t offset, size_t most_bytes) const {
  if (offset < 0) return "";
  std::string bytes(most_bytes, '\0');
  size_t filled = 0;
  while (filled < most_bytes) {
    const ssize_t got = pread(fd_, bytes.data() + filled, most_bytes - filled,
                              offset + static_cast<int64_t>(filled));
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace trireme::dashboard
