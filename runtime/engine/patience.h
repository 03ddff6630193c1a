// Patience: how long a rank waits for its peers inside a program. A wait may rightly last as long
// as the pipeline needs to fill or to drain, in instructions of other ranks; how long one takes is
// told by the rank's own. Where replicas of a stage wait for one another, a slower one is behind by
// all that it did more slowly since all ranks last met. The deadline is for silence beyond that
// (docs/adr/0010).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "trireme/v1/plan.pb.h"

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

  // What programs tell of: those with backward, and those of forward alone, which are shorter.
  enum class Kind { kTraining, kForward };
  void ProgramBegins(Kind kind) { kind_ = kind; }
  // One F, I, W or B of the own rank.
  void Ran(Nanoseconds duration) { slowest_ = std::max(slowest_, duration); }
  // `duration`: of the whole program. Times of the one of its kind before it count no more.
  void ProgramEnds(Nanoseconds duration) {
    Times& last = last_[static_cast<size_t>(kind_)];
    last.program = duration;
    if (slowest_ > Nanoseconds{0}) last.slowest = std::exchange(slowest_, Nanoseconds{0});
  }

  // Something of this kind of program.
  bool Knows() const { return Slowest() > Nanoseconds{0}; }
  // Of a wait that begins now. Before anything of its kind has run, little is known of the machine:
  // each instruction on the way may take the deadline.
  Milliseconds Limit() const {
    if (Knows()) return LimitOf(Slowest());
    return std::max(deadline_ * (1 + int64_t{place_.before}),
                    LimitOf(std::max(last_[0].slowest, last_[1].slowest)));
  }
  // The same of a wait for ranks that this one has not waited for during the last `alone`: other
  // replicas, or all. They may have been kSpread times slower all the while. A wait on an
  // asynchronous stream begins later than it is issued: by what the last program of its kind took,
  // or less.
  Milliseconds MeetingLimit(Nanoseconds alone) const {
    return Limit() +
           std::chrono::ceil<Milliseconds>(std::max(alone, last().program) * int64_t{kSpread - 1});
  }

 private:
  struct Times {
    Nanoseconds slowest{0};  // of its instructions
    Nanoseconds program{0};  // the whole of it
  };
  const Times& last() const { return last_[static_cast<size_t>(kind_)]; }
  Nanoseconds Slowest() const { return std::max(slowest_, last().slowest); }
  Milliseconds LimitOf(Nanoseconds slowest) const {
    return deadline_ + std::chrono::ceil<Milliseconds>(slowest * kSpread * kInstructions *
                                                       int64_t{place_.stages});
  }

  Milliseconds deadline_;
  Place place_;
  Kind kind_ = Kind::kTraining;  // of the program under way, or of the last one
  Nanoseconds slowest_{0};       // of the program under way
  Times last_[2];                // by kind
};

// Whether a rank may be behind others by the time that its own disk takes: all that ranks wait for
// of each other in a program then has the patience of MeetingLimit, the collectives of a tensor
// group too.
bool WaitsForSwaps(const v1::Plan& plan);
// Whether what this kind of instruction issues is waited for with MeetingLimit: sums and gathers of
// replicas; and under ZeRO-2 and ZeRO-3, where these stand between the computations of a stage,
// messages of neighbours too, which are as late as the slower replica; where ranks wait for swaps,
// all.
bool MeetsReplicas(const v1::Plan& plan, v1::InstructionKind kind);

}  // namespace trireme::engine
