#include "checkpoint/client/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "runtime/base/text.h"

namespace trireme::checkpoint {

using base::Text;

absl::Status DiskError(std::string_view path, std::string_view what, int errno_value) {
  const std::string text = Text(path, ": ", what, ": ", std::strerror(errno_value));
  if (errno_value == ENOSPC || errno_value == EDQUOT) return absl::ResourceExhaustedError(text);
  if (errno_value == ENOENT) return absl::NotFoundError(text);
  return absl::UnavailableError(text);
}

absl::Status WriteDurably(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return DiskError(path, "cannot be created", errno);
  absl::Status status;
  while (!text.empty() && status.ok()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      status = DiskError(path, "cannot be written", errno);
    }
  }
  if (status.ok() && fsync(fd) != 0) status = DiskError(path, "cannot be flushed", errno);
  if (close(fd) != 0 && status.ok()) status = DiskError(path, "cannot be closed", errno);
  return status;
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return DiskError(folder, "cannot be opened", errno);
  const int rc = fsync(fd);
  const int error = errno;
  close(fd);
  return rc == 0 ? absl::OkStatus() : DiskError(folder, "cannot be flushed", error);
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) return DiskError(path, "cannot be read", error.value());
  if (bytes > kMostBytes) return absl::DataLossError(Text(path, ": ", bytes, " bytes are no manifest"));
  std::string text(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) {
    return absl::UnavailableError(Text(path, ": cannot be read"));
  }
  return text;
}

}  // namespace trireme::checkpoint
