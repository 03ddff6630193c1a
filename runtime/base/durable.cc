#include "runtime/base/durable.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::base {
namespace {

namespace fs = std::filesystem;

// errno; 0: it is on the disk.
int FlushFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  // Some file systems cannot flush a folder, and say so.
  return error == EINVAL || error == EOPNOTSUPP || error == ENOSYS ? 0 : error;
}

bool IsFull(int errno_value) {
  return errno_value == ENOSPC || errno_value == EDQUOT || errno_value == EFBIG;
}

absl::Status Full(std::string_view what) {
  return absl::UnavailableError(Text(what, ": the disk, quota or file size limit is full"));
}

// Without a slash at its end.
absl::Status Absolute(const std::string& folder, fs::path* absolute) {
  std::error_code error;
  *absolute = fs::absolute(folder, error);
  if (error) return DiskError(folder, "cannot be made", error.value());
  if (!absolute->has_filename()) *absolute = absolute->parent_path();
  return absl::OkStatus();
}

}  // namespace

absl::Status DiskError(std::string_view path, std::string_view what, int errno_value) {
  if (IsFull(errno_value)) return Full(Text(path, ": ", what));
  const std::string text = Text(path, ": ", what, ": ", std::strerror(errno_value));
  switch (errno_value) {
    case ENOENT:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::Status ErrnoStatus(int errno_value, std::string_view what) {
  if (IsFull(errno_value)) return Full(what);
  return absl::ErrnoToStatus(errno_value, absl::string_view(what.data(), what.size()));
}

absl::Status WriteDurably(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
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
  const int error = FlushFolder(folder);
  return error == 0 ? absl::OkStatus() : DiskError(folder, "cannot be flushed", error);
}

absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return SyncFolder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

absl::Status MakeFolders(const std::string& folder) {
  fs::path lowest;
  RETURN_IF_ERROR(Absolute(folder, &lowest));
  std::error_code error;
  fs::path there = lowest;
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  fs::create_directories(lowest, error);
  if (error) return DiskError(folder, "cannot be made", error.value());
  for (fs::path made = lowest; made != there; made = made.parent_path()) {
    RETURN_IF_ERROR(SyncFolder(made.parent_path().string()));
  }
  return absl::OkStatus();
}

absl::Status SyncWayTo(const std::string& folder) {
  fs::path at;
  RETURN_IF_ERROR(Absolute(folder, &at));
  while (at.has_relative_path()) {
    at = at.parent_path();
    const int error = FlushFolder(at.string());
    if (error == 0 || error == EACCES || error == EPERM || error == EROFS) continue;
    return DiskError(at.string(), "cannot be flushed", error);
  }
  return absl::OkStatus();
}

}  // namespace trireme::base
