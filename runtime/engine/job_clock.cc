// Rank r with lowest set bit b asks r - b, who asked before it; answers are in job time, so errors
// of the ways add up along at most log2(size) edges.
#include "runtime/engine/job_clock.h"

#include <span>

#include "runtime/base/status_macros.h"
#include "runtime/tensor/stream.h"

namespace trireme::engine {

namespace {

constexpr int kExchanges = 8;

}  // namespace

absl::Status JobClock::Synchronize(comm::Communicator& world, std::chrono::milliseconds deadline) {
  if (!begun_ && world.rank() == 0) offset_ns_ = -now_();
  begun_ = true;
  int bit = 1;
  while (bit < world.size()) bit *= 2;
  for (; bit > 0; bit /= 2) {
    const int place = world.rank() % (2 * bit);
    if (place == 0 && world.rank() + bit < world.size()) {
      RETURN_IF_ERROR(Serve(world, world.rank() + bit, deadline));
    } else if (place == bit) {
      RETURN_IF_ERROR(Ask(world, world.rank() - bit, deadline));
    }
  }
  return absl::OkStatus();
}

absl::Status JobClock::Serve(comm::Communicator& world, int peer,
                             std::chrono::milliseconds deadline) const {
  const auto stream = tensor::MakeInlineStream();
  for (int exchange = 0; exchange < kExchanges; ++exchange) {
    int64_t time = 0;
    const auto bytes = std::as_writable_bytes(std::span(&time, 1));
    RETURN_IF_ERROR(world.WaitHost(world.Recv(bytes, peer, 0, *stream), deadline));
    time = ToJob(now_());
    RETURN_IF_ERROR(world.WaitHost(world.Send(bytes, peer, 0, *stream), deadline));
  }
  return absl::OkStatus();
}

absl::Status JobClock::Ask(comm::Communicator& world, int peer,
                           std::chrono::milliseconds deadline) {
  const auto stream = tensor::MakeInlineStream();
  for (int exchange = 0; exchange < kExchanges; ++exchange) {
    int64_t time = 0;
    const auto bytes = std::as_writable_bytes(std::span(&time, 1));
    const int64_t asked = now_();
    RETURN_IF_ERROR(world.WaitHost(world.Send(bytes, peer, 0, *stream), deadline));
    RETURN_IF_ERROR(world.WaitHost(world.Recv(bytes, peer, 0, *stream), deadline));
    const int64_t answered = now_();
    if (exchange > 0 && answered - asked >= round_trip_ns_) continue;
    round_trip_ns_ = answered - asked;
    offset_ns_ = time - (asked + round_trip_ns_ / 2);
  }
  return absl::OkStatus();
}

}  // namespace trireme::engine
