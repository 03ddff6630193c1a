// A Communicator that notes how long each of its waits may last: deadlines are seen without
// waiting for one.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "tests/runtime/engine/forwarding_fabric.h"

namespace trireme::engine {

// `deadlines` must outlive it.
class TimedCommunicator final : public ForwardingCommunicator {
 public:
  TimedCommunicator(std::unique_ptr<comm::Communicator> inner,
                    std::vector<std::chrono::milliseconds>& deadlines)
      : ForwardingCommunicator(std::move(inner)), deadlines_(deadlines) {}
  absl::Status WaitHost(comm::Ticket ticket, std::chrono::milliseconds deadline) override {
    deadlines_.push_back(deadline);
    return ForwardingCommunicator::WaitHost(ticket, deadline);
  }
  void WaitOn(comm::Ticket ticket, tensor::Stream& stream,
              std::chrono::milliseconds deadline) override {
    deadlines_.push_back(deadline);
    ForwardingCommunicator::WaitOn(ticket, stream, deadline);
  }

 private:
  std::vector<std::chrono::milliseconds>& deadlines_;
};

}  // namespace trireme::engine
