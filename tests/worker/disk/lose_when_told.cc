// For LD_PRELOAD: in the worker of rank $LOSING_RANK the disk tells that it has lost what was
// written, the second time that it is waited for at the beginning of a file. The first time is a
// step's, of the first piece of state that it reads.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

bool Loses() {
  const char* wanted = std::getenv("LOSING_RANK");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return wanted != nullptr && rank != nullptr && std::strcmp(wanted, rank) == 0 &&
         std::strcmp(program_invocation_short_name, "trireme-worker") == 0;
}

}  // namespace

extern "C" int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags) {
  static const bool loses = Loses();
  static std::atomic<int> waits{0};
  if (loses && offset == 0 && (flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0 && ++waits == 2) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_sync_file_range, fd, offset, bytes, flags));
}
