#include "runtime/base/whole_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "runtime/base/durable.h"
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

absl::Status WriteBeside(const std::string& path, mode_t mode,
                         const std::function<bool(int fd)>& write_content) {
  const std::string beside = path + ".partial";
  const auto failed = [&] {
    const int error = errno;
    unlink(beside.c_str());
    return ErrnoStatus(error, Text("cannot write ", path));
  };
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return failed();
  const bool written = write_content(fd) && fsync(fd) == 0;
  if (close(fd) != 0 || !written || std::rename(beside.c_str(), path.c_str()) != 0) return failed();
  return SyncFolderOf(path);
}

}  // namespace

absl::Status WriteWholeFile(const std::string& path, std::string_view content, mode_t mode) {
  return WriteBeside(path, mode, [&](int fd) { return WriteAll(fd, content); });
}

absl::Status WriteWholeFile(const std::string& path, const std::function<std::string()>& next,
                            mode_t mode) {
  return WriteBeside(path, mode, [&](int fd) {
    for (std::string part = next(); !part.empty(); part = next()) {
      if (!WriteAll(fd, part)) return false;
    }
    return true;
  });
}

absl::Status WriteNewFile(const std::string& path, std::string_view content, mode_t mode) {
  // By a link, which takes no name that is taken. Writers of other machines have other names too.
  std::string beside = path + ".XXXXXX";
  const int fd = mkostemp(beside.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, Text("cannot write ", path));
  bool made = fchmod(fd, mode) == 0 && WriteAll(fd, content) && fsync(fd) == 0;
  made = close(fd) == 0 && made && link(beside.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(beside.c_str());
  if (made) return SyncFolderOf(path);
  if (error == EEXIST) return absl::AlreadyExistsError(Text(path, " exists already"));
  return ErrnoStatus(error, Text("cannot write ", path));
}

namespace {

// Closes it.
absl::StatusOr<std::string> ReadAll(int fd, const std::string& path, size_t most_bytes) {
  const auto failed = [&] { return absl::ErrnoToStatus(errno, Text("cannot read ", path)); };
  std::string content;
  std::array<char, 1 << 16> piece;
  absl::Status status;
  while (status.ok()) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) break;
    if (got < 0) {
      status = failed();
    } else if (content.size() + static_cast<size_t>(got) > most_bytes) {
      status = absl::ResourceExhaustedError(
          Text(path, " has more than ", most_bytes, " bytes; is it the right file?"));
    } else {
      content.append(piece.data(), static_cast<size_t>(got));
    }
  }
  close(fd);
  if (!status.ok()) return status;
  return content;
}

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, Text("cannot read ", path));
  return ReadAll(fd, path, most_bytes);
}

absl::StatusOr<std::string> ReadPlainFile(const std::string& path, size_t most_bytes) {
  const absl::Status other = absl::FailedPreconditionError(Text(path, " is no plain file"));
  // By a code that says nothing of the file itself.
  const auto refused = [&](int errno_value) {
    const absl::Status status = absl::ErrnoToStatus(errno_value, Text("cannot read ", path));
    const bool of_the_file =
        absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status);
    return of_the_file ? absl::UnavailableError(status.message()) : status;
  };
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && (errno == ELOOP || errno == ENXIO)) return other;
  if (fd < 0) return refused(errno);
  struct stat about {};
  const int error = fstat(fd, &about) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(about.st_mode)) {
    absl::StatusOr<std::string> content = ReadAll(fd, path, most_bytes);
    if (!absl::IsFailedPrecondition(content.status())) return content;
    return absl::UnavailableError(content.status().message());
  }
  close(fd);
  return error == 0 ? other : refused(error);
}

}  // namespace trireme::base
