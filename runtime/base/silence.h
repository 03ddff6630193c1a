// Silence: how long another has been silent, in time in which one listened. A process that was
// stopped or starved (SIGSTOP, a virtual machine on its way to another host, a job that Slurm
// suspends) did not listen: that is no silence of its peers, nor of its disk.
#pragma once

#include <algorithm>
#include <chrono>

namespace trireme::base {

// Thread: one, which looks much more often than every kLongestGap.
class Silence {
 public:
  using Clock = std::chrono::steady_clock;
  // Between two looks; more is time in which this thread did not run.
  static constexpr std::chrono::milliseconds kLongestGap{200};

  // It begins at `now`.
  explicit Silence(Clock::time_point now) : since_(now), looked_(now) {}
  // A look that has brought nothing. Returns the time before it that does not count.
  Clock::duration Look(Clock::time_point now) {
    const auto deaf = std::max<Clock::duration>(now - looked_ - kLongestGap, {});
    since_ += deaf;
    looked_ = now;
    return deaf;
  }
  // Something came by the last look: it begins anew there.
  void Break() { since_ = looked_; }

  Clock::duration length() const { return looked_ - since_; }
  // As if all of it had been listened to.
  Clock::time_point since() const { return since_; }

 private:
  Clock::time_point since_, looked_;
};

}  // namespace trireme::base
