// Every issuing call passes Strike first; waiting and progress go straight through.
#include "runtime/comm/faulty.h"

#include <atomic>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/base/check.h"

namespace trireme::comm {
namespace {

// The faults and the count of a rank; shared by its groups.
class Faults {
 public:
  explicit Faults(std::vector<Fault> faults) : faults_(std::move(faults)) {
    for (const Fault& fault : faults_) {
      TRIREME_CHECK(fault.operation > 0);
      TRIREME_CHECK(fault.kind != Fault::Kind::kKill || fault.kill);
    }
  }

  // Counts an operation and lets its faults happen; true if it is to be dropped.
  bool Strike() {
    const uint64_t number = ++issued_;
    bool dropped = false;
    for (const Fault& fault : faults_) {
      const bool repeats = fault.every > 0 && number > fault.operation &&
                           (number - fault.operation) % fault.every == 0;
      if (number != fault.operation && !repeats) continue;
      if (fault.kind == Fault::Kind::kDelay) std::this_thread::sleep_for(fault.delay);
      if (fault.kind == Fault::Kind::kKill) fault.kill();
      dropped = dropped || fault.kind == Fault::Kind::kDrop;
    }
    return dropped;
  }

 private:
  const std::vector<Fault> faults_;
  std::atomic<uint64_t> issued_{0};
};

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<Faults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Ticket Send(std::span<const std::byte> data, int peer, uint32_t channel,
              const OperationOptions& options) override {
    return faults_->Strike() ? Ticket{} : inner_->Send(data, peer, channel, options);
  }
  Ticket Recv(std::span<std::byte> data, int peer, uint32_t channel,
              const OperationOptions& options) override {
    return faults_->Strike() ? Ticket{} : inner_->Recv(data, peer, channel, options);
  }
  Ticket AllReduce(void* data, int64_t count, tensor::DType dtype, ReduceOp op,
                   const OperationOptions& options) override {
    return faults_->Strike() ? Ticket{} : inner_->AllReduce(data, count, dtype, op, options);
  }
  Ticket ReduceScatter(const Sharded& sharded, const OperationOptions& options) override {
    return faults_->Strike() ? Ticket{} : inner_->ReduceScatter(sharded, options);
  }
  Ticket AllGather(const Sharded& sharded, const OperationOptions& options) override {
    return faults_->Strike() ? Ticket{} : inner_->AllGather(sharded, options);
  }
  Ticket Broadcast(std::span<std::byte> data, int root, const OperationOptions& options) override {
    return faults_->Strike() ? Ticket{} : inner_->Broadcast(data, root, options);
  }
  bool SumsInWindow() const override { return inner_->SumsInWindow(); }
  void LeaveWindow() override { inner_->LeaveWindow(); }
  bool Test(Ticket ticket) override { return inner_->Test(ticket); }
  absl::Status WaitHost(Ticket ticket, std::chrono::milliseconds deadline) override {
    return inner_->WaitHost(ticket, deadline);
  }
  void WaitOn(Ticket ticket, tensor::Stream& stream, std::chrono::milliseconds deadline) override {
    inner_->WaitOn(ticket, stream, deadline);
  }
  void Progress() override { inner_->Progress(); }
  absl::Status status() const override { return inner_->status(); }
  void Abort(absl::Status cause) override { inner_->Abort(std::move(cause)); }

 private:
  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<Faults> faults_;
};

class FaultyFabric final : public Fabric {
 public:
  FaultyFabric(std::unique_ptr<Fabric> inner, std::vector<Fault> faults)
      : inner_(std::move(inner)), faults_(std::make_shared<Faults>(std::move(faults))) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::StatusOr<std::unique_ptr<Communicator>> Group(std::span<const int> ranks,
                                                      std::string_view name,
                                                      const CodingRoom& coding) override {
    auto inner = inner_->Group(ranks, name, coding);
    if (!inner.ok()) return inner.status();
    return std::make_unique<FaultyCommunicator>(*std::move(inner), faults_);
  }
  absl::StatusOr<std::shared_ptr<NodeMemory>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  void WatchWaits(WaitWatcher* watcher) override { inner_->WatchWaits(watcher); }
  absl::Status Close() override { return inner_->Close(); }

 private:
  std::unique_ptr<Fabric> inner_;
  std::shared_ptr<Faults> faults_;
};

}  // namespace

std::unique_ptr<Fabric> MakeFaulty(std::unique_ptr<Fabric> fabric, std::vector<Fault> faults) {
  return std::make_unique<FaultyFabric>(std::move(fabric), std::move(faults));
}

}  // namespace trireme::comm
