// Patience: how long a rank waits for its peers inside a program. A wait may rightly last as long
// as the pipeline needs to fill or to drain, in instructions of other ranks; how long one takes is
// told by the rank's own. Where replicas of a stage wait for one another, a slower one is behind by
// all that it did more slowly since all ranks last met. The deadline is for silence beyond that
// (docs/adr/0010).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace trireme::engine {

// Thread: the engine's.
class Patience {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  using Milliseconds = std::chrono::milliseconds;

  // Other stages and machines may be this much slower than the own slowest instruction.
  static constexpr int kSpread = 4;
  // F, I and W of each stage: the longest chain of others' instructions behind one wait.
  static constexpr int kInstructions = 3;

  struct Place {
    uint32_t stages = 1;  // virtual ones, of the whole pipeline
    // That bring the first input of this rank, before it has run anything.
    uint32_t before = 0;
  };
  Patience(Milliseconds deadline, const Place& place) : deadline_(deadline), place_(place) {}

  // One F, I, W or B of the own rank.
  void Ran(Nanoseconds duration) { slowest_ = std::max(slowest_, duration); }
  // `duration`: of the whole program. Times of the one before it count no more.
  void ProgramEnds(Nanoseconds duration) {
    program_ = duration;
    if (slowest_ > Nanoseconds{0}) before_ = std::exchange(slowest_, Nanoseconds{0});
  }

  bool Knows() const { return std::max(slowest_, before_) > Nanoseconds{0}; }
  // Of a wait that begins now. Before anything has run, nothing is known of the machine: each
  // instruction on the way may take the deadline.
  Milliseconds Limit() const {
    const Nanoseconds slowest = std::max(slowest_, before_);
    if (!Knows()) return deadline_ * (1 + int64_t{place_.before});
    return deadline_ + std::chrono::ceil<Milliseconds>(slowest * kSpread * kInstructions *
                                                       int64_t{place_.stages});
  }
  // The same of a wait for ranks that this one has not waited for during the last `alone`: other
  // replicas, or all. They may have been kSpread times slower all the while. A wait on an
  // asynchronous stream begins later than it is issued: by what the last program took, or less.
  Milliseconds MeetingLimit(Nanoseconds alone) const {
    return Limit() +
           std::chrono::ceil<Milliseconds>(std::max(alone, program_) * int64_t{kSpread - 1});
  }

 private:
  Milliseconds deadline_;
  Place place_;
  Nanoseconds slowest_{0};  // of the program under way
  Nanoseconds before_{0};   // of the last one
  Nanoseconds program_{0};  // the whole of it
};

}  // namespace trireme::engine
