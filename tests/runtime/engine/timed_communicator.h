// A Communicator that notes how long each of its waits may last: deadlines are seen without
// waiting for one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/engine/step_trace.h"
#include "tests/runtime/engine/forwarding_fabric.h"

namespace trireme::engine {

struct NotedWait {
  std::string group;
  std::chrono::milliseconds deadline;
  int64_t issued_ns = 0;
};

// `waits` must outlive it.
class TimedCommunicator final : public ForwardingCommunicator {
 public:
  TimedCommunicator(std::unique_ptr<comm::Communicator> inner, std::string_view name,
                    std::vector<NotedWait>& waits)
      : ForwardingCommunicator(std::move(inner)), name_(name), waits_(waits) {}
  absl::Status WaitHost(comm::Ticket ticket, std::chrono::milliseconds deadline) override {
    waits_.push_back({name_, deadline, NowNs()});
    return ForwardingCommunicator::WaitHost(ticket, deadline);
  }
  void WaitOn(comm::Ticket ticket, tensor::Stream& stream,
              std::chrono::milliseconds deadline) override {
    waits_.push_back({name_, deadline, NowNs()});
    ForwardingCommunicator::WaitOn(ticket, stream, deadline);
  }

 private:
  const std::string name_;
  std::vector<NotedWait>& waits_;
};

}  // namespace trireme::engine
