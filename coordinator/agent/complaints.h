// Which failures of the line are told: the first at once, then one every 30 s until there is a
// line; what only people can mend, each time.
#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"

namespace trireme::agent {

// One thread.
class Complaints {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kEvery{30};

  explicit Complaints(Clock::time_point now) : since_(now) {}
  // Whether to tell `state`, of which there have been `failures` so far.
  bool Due(const absl::Status& state, uint64_t failures, Clock::time_point now) {
    const bool anew = failures != failures_;
    failures_ = failures;
    if (state.ok()) {
      told_ = false;
      since_ = now;
      return false;
    }
    // Another machine is that node already, or speaks another version.
    const bool lasts = absl::IsAlreadyExists(state) || absl::IsAborted(state);
    // A dial that nobody answers is no failure yet.
    if (now - since_ < kEvery && !(anew && (lasts || !told_))) return false;
    told_ = true;
    since_ = now;
    return true;
  }

 private:
  uint64_t failures_ = 0;
  Clock::time_point since_;  // the last one was told, or there is no line
  bool told_ = false;
};

}  // namespace trireme::agent
