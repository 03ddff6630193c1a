// Seconds of a call, by the wall or by the processor's time of this process: on a loaded machine,
// with one thread, the only clock that counts this program alone.
#pragma once

#include <ctime>

namespace trireme::benchmark {

class Stopwatch {
 public:
  explicit Stopwatch(clockid_t clock = CLOCK_MONOTONIC) : clock_(clock) {}

  template <class Body>
  double Seconds(const Body& body) const {
    const double start = Now();
    body();
    return Now() - start;
  }

 private:
  double Now() const {
    timespec now = {};
    clock_gettime(clock_, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  clockid_t clock_;
};

}  // namespace trireme::benchmark
