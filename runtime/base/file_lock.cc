#include "runtime/base/file_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/durable.h"
#include "runtime/base/text.h"

namespace trireme::base {
namespace {

struct flock WholeFile(int type) {
  struct flock lock {};
  lock.l_type = static_cast<short>(type);
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

absl::StatusOr<int> LockFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, Text("cannot open ", path));
  const struct flock lock = WholeFile(F_WRLCK);
  if (fcntl(fd, F_SETLK, &lock) == 0) return fd;
  const int why = errno;
  close(fd);
  if (why != EACCES && why != EAGAIN) {
    return absl::ErrnoToStatus(why, Text("cannot lock ", path));
  }
  return absl::AlreadyExistsError(Text(path, " is locked by another process"));
}

bool IsLocked(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct flock lock = WholeFile(F_RDLCK);
  const bool held = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  close(fd);
  return held;
}

}  // namespace trireme::base
