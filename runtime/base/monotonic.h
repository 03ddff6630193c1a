// The clock of deadlines and ages: nobody sets it, and it begins anew with the machine.
#pragma once

#include <time.h>

#include <cstdint>

namespace trireme::base {

inline constexpr int64_t kNsPerMs = 1000000;
inline constexpr int64_t kNsPerSecond = 1000 * kNsPerMs;

inline int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

// The same, and goes on while the machine sleeps: how long others have had to do without it.
inline int64_t BoottimeNs() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

}  // namespace trireme::base
