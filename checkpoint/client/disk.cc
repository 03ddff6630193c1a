// Calls of the operating system, with their errors as statuses that name path and cause.
#include "checkpoint/client/disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;
using base::Text;

absl::Status DiskError(std::string_view path, std::string_view what, int errno_value) {
  const std::string text = Text(path, ": ", what, ": ", std::strerror(errno_value));
  if (errno_value == ENOSPC || errno_value == EDQUOT) return absl::ResourceExhaustedError(text);
  if (errno_value == ENOENT) return absl::NotFoundError(text);
  return absl::UnavailableError(text);
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

absl::Status MakeFolders(const std::string& folder) {
  std::error_code error;
  fs::path lowest = fs::absolute(folder, error);
  if (error) return DiskError(folder, "cannot be made", error.value());
  if (!lowest.has_filename()) lowest = lowest.parent_path();
  fs::path there = lowest;
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  fs::create_directories(lowest, error);
  if (error) return DiskError(folder, "cannot be made", error.value());
  for (fs::path made = lowest; made != there; made = made.parent_path()) {
    RETURN_IF_ERROR(SyncFolder(made.parent_path().string()));
  }
  return absl::OkStatus();
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return DiskError(folder, "cannot be opened", errno);
  const int rc = fsync(fd);
  const int error = errno;
  close(fd);
  // Some network file systems cannot flush a folder and say so by EINVAL.
  if (rc == 0 || error == EINVAL) return absl::OkStatus();
  return DiskError(folder, "cannot be flushed", error);
}

absl::StatusOr<std::string> ReadText(const std::string& path, base::Links links) {
  const int64_t most_bytes = int64_t{1} << (links == base::Links::kFollow ? 30 : 25);
  const int fd = base::OpenToRead(path, links);
  if (fd < 0) return DiskError(path, "cannot be read", errno);
  struct stat about {};
  absl::Status status;
  std::string text;
  if (fstat(fd, &about) != 0) {
    status = DiskError(path, "cannot be read", errno);
  } else if (about.st_size > most_bytes) {
    status = absl::DataLossError(Text(path, ": ", about.st_size, " bytes are more than the ",
                                      most_bytes, " of a manifest here"));
  } else {
    text.resize(static_cast<size_t>(about.st_size));
  }
  for (size_t done = 0; status.ok() && done < text.size();) {
    const ssize_t got = read(fd, text.data() + done, text.size() - done);
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (got == 0) {
      status = absl::UnavailableError(Text(path, ": cannot be read: it got shorter meanwhile"));
    } else if (errno != EINTR) {
      status = DiskError(path, "cannot be read", errno);
    }
  }
  close(fd);
  if (!status.ok()) return status;
  return text;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? DiskError(path, "cannot be removed", error.value()) : absl::OkStatus();
}

absl::Status Publish(const std::string& from, const std::string& to, const std::string& aside,
                     Swap swap) {
  const std::string root = fs::path(to).parent_path().string();
  if (!Exists(to)) {
    if (rename(from.c_str(), to.c_str()) != 0) return DiskError(to, "cannot be named", errno);
    return SyncFolder(root);
  }
  std::string old = from;
  if (swap == Swap::kTwoRenames ||
      renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    old = aside;
    RETURN_IF_ERROR(RemoveAll(aside));
    if (rename(to.c_str(), aside.c_str()) != 0) return DiskError(to, "cannot be set aside", errno);
    if (rename(from.c_str(), to.c_str()) != 0) {
      const absl::Status status = DiskError(to, "cannot be named", errno);
      rename(aside.c_str(), to.c_str());
      return status;
    }
  }
  RETURN_IF_ERROR(SyncFolder(root));
  // The new one is in place; what cannot be removed of the old one is hidden, and left to Prune.
  (void)RemoveAll(old);
  return absl::OkStatus();
}

}  // namespace trireme::checkpoint
