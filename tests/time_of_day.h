// A time of day that a test sets: absl's waits ask for it, and the kernel, which is asked to wait
// until then, has another one. So whoever waits by the time of day waits as if it had been set back
// meanwhile.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace trireme::test {

inline std::atomic<int64_t> time_of_day_ahead_s{0};

class TimeOfDayAhead {
 public:
  explicit TimeOfDayAhead(int64_t seconds) { time_of_day_ahead_s = seconds; }
  ~TimeOfDayAhead() { time_of_day_ahead_s = 0; }
  TimeOfDayAhead(const TimeOfDayAhead&) = delete;
  TimeOfDayAhead& operator=(const TimeOfDayAhead&) = delete;
};

}  // namespace trireme::test

// In front of libc's.
extern "C" [[gnu::used]] inline int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += trireme::test::time_of_day_ahead_s;
  return result;
}
