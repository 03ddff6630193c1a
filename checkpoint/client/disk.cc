// Calls of the operating system, with their errors as statuses that name path and cause.
#include "checkpoint/client/disk.h"

#include <fcntl.h>
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

absl::Status ReadError(std::string_view path, std::string_view what, int errno_value) {
  // EUCLEAN, EBADMSG: how file systems tell of metadata that a cut of the power has damaged.
  // EINVAL: what base::OpenToRead says of what is no file.
  const bool lost = errno_value == EIO || errno_value == EUCLEAN || errno_value == EBADMSG ||
                    errno_value == EINVAL;
  if (!lost) return DiskError(path, what, errno_value);
  return absl::DataLossError(Text(path, ": ", what, ": ", std::strerror(errno_value)));
}

void ForgetCached(int fd) { posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }

absl::StatusOr<std::string> ReadText(const std::string& path, base::Links links) {
  const int64_t most_bytes = int64_t{1} << (links == base::Links::kFollow ? 30 : 25);
  const int fd = base::OpenToRead(path, links);
  if (fd < 0) return ReadError(path, "cannot be read", errno);
  struct stat about {};
  absl::Status status;
  std::string text;
  if (fstat(fd, &about) != 0) {
    status = ReadError(path, "cannot be read", errno);
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
      status = ReadError(path, "cannot be read", errno);
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

}  // namespace trireme::checkpoint
