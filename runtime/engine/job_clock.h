// JobClock: one clock for all ranks of a job. Steady clocks of nodes differ by their boot times; a
// rank learns its difference to rank 0's by ping-pong, along a tree, from the exchange with the
// shortest way there and back. Its error is at most half of that way (Cristian, "Probabilistic
// clock synchronization", 1989).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"

namespace trireme::engine {

class JobClock {
 public:
  // `now`: nanoseconds of this rank's own clock.
  explicit JobClock(std::function<int64_t()> now) : now_(std::move(now)) {}

  // Collective over `world`, log2(size) rounds of messages on channel 0. Clocks drift: call it
  // again now and then.
  absl::Status Synchronize(comm::Communicator& world, std::chrono::milliseconds deadline);

  // Time since rank 0's first Synchronize, from a time of this rank's own clock, and back.
  int64_t ToJob(int64_t own_ns) const { return own_ns + offset_ns_; }
  int64_t ToOwn(int64_t job_ns) const { return job_ns - offset_ns_; }
  // The way there and back, in own time, of the exchange that counted; 0 on rank 0.
  int64_t round_trip_ns() const { return round_trip_ns_; }

 private:
  absl::Status Serve(comm::Communicator& world, int peer, std::chrono::milliseconds deadline) const;
  absl::Status Ask(comm::Communicator& world, int peer, std::chrono::milliseconds deadline);

  std::function<int64_t()> now_;
  bool begun_ = false;
  int64_t offset_ns_ = 0;
  int64_t round_trip_ns_ = 0;
};

}  // namespace trireme::engine
