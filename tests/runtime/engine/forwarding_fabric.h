// A Fabric and a Communicator that hand every call on, to be overridden where a test looks or acts.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/comm/communicator.h"

namespace trireme::engine {

class ForwardingCommunicator : public comm::Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<comm::Communicator> inner)
      : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  comm::Ticket Send(std::span<const std::byte> data, int peer, uint32_t channel,
                    const comm::OperationOptions& options) override {
    return inner_->Send(data, peer, channel, options);
  }
  comm::Ticket Recv(std::span<std::byte> data, int peer, uint32_t channel,
                    const comm::OperationOptions& options) override {
    return inner_->Recv(data, peer, channel, options);
  }
  comm::Ticket AllReduce(void* data, int64_t count, tensor::DType dtype, comm::ReduceOp op,
                         const comm::OperationOptions& options) override {
    return inner_->AllReduce(data, count, dtype, op, options);
  }
  comm::Ticket ReduceScatter(const comm::Sharded& sharded,
                             const comm::OperationOptions& options) override {
    return inner_->ReduceScatter(sharded, options);
  }
  comm::Ticket AllGather(const comm::Sharded& sharded,
                         const comm::OperationOptions& options) override {
    return inner_->AllGather(sharded, options);
  }
  comm::Ticket Broadcast(std::span<std::byte> data, int root,
                         const comm::OperationOptions& options) override {
    return inner_->Broadcast(data, root, options);
  }
  bool SumsInWindow() const override { return inner_->SumsInWindow(); }
  void LeaveWindow() override { inner_->LeaveWindow(); }
  bool Test(comm::Ticket ticket) override { return inner_->Test(ticket); }
  absl::Status WaitHost(comm::Ticket ticket, std::chrono::milliseconds deadline) override {
    return inner_->WaitHost(ticket, deadline);
  }
  void WaitOn(comm::Ticket ticket, tensor::Stream& stream,
              std::chrono::milliseconds deadline) override {
    inner_->WaitOn(ticket, stream, deadline);
  }
  void Progress() override { inner_->Progress(); }
  absl::Status status() const override { return inner_->status(); }
  void Abort(absl::Status cause) override { inner_->Abort(std::move(cause)); }

 private:
  std::unique_ptr<comm::Communicator> inner_;
};

// Does not own what it hands on to. `decorate` gets each group with its name.
class ForwardingFabric final : public comm::Fabric {
 public:
  using Decorate = std::function<std::unique_ptr<comm::Communicator>(
      std::unique_ptr<comm::Communicator> group, std::string_view name)>;

  explicit ForwardingFabric(comm::Fabric& inner, Decorate decorate = {})
      : inner_(inner), decorate_(std::move(decorate)) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::StatusOr<std::unique_ptr<comm::Communicator>> Group(
      std::span<const int> ranks, std::string_view name, const comm::CodingRoom& coding) override {
    auto group = inner_.Group(ranks, name, coding);
    if (!group.ok() || !decorate_) return group;
    return decorate_(*std::move(group), name);
  }
  absl::StatusOr<std::shared_ptr<comm::NodeMemory>> Allocate(size_t bytes) override {
    return inner_.Allocate(bytes);
  }
  void WatchWaits(comm::WaitWatcher* watcher) override { inner_.WatchWaits(watcher); }
  absl::Status Close() override { return inner_.Close(); }

 private:
  comm::Fabric& inner_;
  const Decorate decorate_;
};

}  // namespace trireme::engine
