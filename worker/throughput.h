// How many tokens a second a run trains, by two measures that differ wherever a run does more than
// steps: in the steps alone, and overall, by the clock on the wall.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace trireme::worker {

// Thread: one.
class Throughput {
 public:
  // `now_ns`: nanoseconds of any clock that never goes back.
  explicit Throughput(std::function<int64_t()> now_ns) : now_ns_(std::move(now_ns)) {}

  // The first step of this attempt begins.
  void Start() { start_ns_ = now_ns_(); }
  void AddStep(int64_t tokens, double seconds) {
    tokens_ += tokens;
    step_seconds_ += seconds;
  }

  int64_t tokens() const { return tokens_; }
  // Spent in steps.
  double step_seconds() const { return step_seconds_; }
  // Since Start: steps, and what lies between and after them (evaluation, checkpoints, measuring,
  // logs, traces).
  double wall_seconds() const { return static_cast<double>(now_ns_() - start_ns_) * 1e-9; }
  // Tokens a second of step_seconds(), of wall_seconds(); 0 before there is time.
  double in_steps() const { return Rate(step_seconds_); }
  double overall() const { return Rate(wall_seconds()); }

 private:
  double Rate(double seconds) const {
    return seconds > 0 ? static_cast<double>(tokens_) / seconds : 0;
  }

  const std::function<int64_t()> now_ns_;
  int64_t start_ns_ = 0;
  int64_t tokens_ = 0;
  double step_seconds_ = 0;
};

}  // namespace trireme::worker
