// For LD_PRELOAD: while the file $HANG_FILE is there, the main thread of the worker of rank
// $HANG_RANK does not come back from its next look at the clock, as one that is stuck in a
// driver or on a dead disk: it lives, is not stopped, and does nothing.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

// The file, or null in any other process.
const char* HangFile() {
  const char* wanted = std::getenv("HANG_RANK");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (wanted == nullptr || rank == nullptr || std::strcmp(wanted, rank) != 0) return nullptr;
  return std::strcmp(program_invocation_short_name, "trireme-worker") == 0
             ? std::getenv("HANG_FILE")
             : nullptr;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const char* const file = HangFile();
  if (file != nullptr && syscall(SYS_gettid) == getpid()) {
    while (access(file, F_OK) == 0) usleep(10000);
  }
  return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
}
