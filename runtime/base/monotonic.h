// The clock of deadlines and ages: nobody sets it, and it begins anew with the machine.
#pragma once

#include <time.h>

#include <cstdint>

namespace trireme::base {

inline int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

}  // namespace trireme::base
