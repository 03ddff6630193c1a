// Whether somebody has set the wall clock: what the steady clock has not seen pass has not passed.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::coordinator {

class ClockWatch {
 public:
  // By how much the wall clock was set since the last call, forward if positive; 0: it was not.
  // Less than a second is drift.
  int64_t Step(int64_t now_unix_ns, int64_t steady_ns);

 private:
  std::optional<int64_t> ahead_ns_;  // the wall clock, of the steady one
};

}  // namespace trireme::coordinator
