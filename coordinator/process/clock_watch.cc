#include "coordinator/process/clock_watch.h"

#include <cstdlib>
#include <utility>

namespace trireme::coordinator {

int64_t ClockWatch::Step(int64_t now_unix_ns, int64_t steady_ns) {
  constexpr int64_t kDriftNs = 1000000000;
  const int64_t ahead_ns = now_unix_ns - steady_ns;
  const int64_t step_ns = ahead_ns - std::exchange(ahead_ns_, ahead_ns).value_or(ahead_ns);
  return std::abs(step_ns) < kDriftNs ? 0 : step_ns;
}

}  // namespace trireme::coordinator
