#include "runtime/comm/coded_fabric.h"

#include <string_view>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/comm/coding_switch.h"

namespace trireme::comm {
namespace {

// Whether an announced coding is used, by what all ranks, and both sides of a message, know alike.
struct Decided {
  Decided(const OperationOptions& asked, const CodedOptions& by, int64_t bytes) : options(asked) {
    if (asked.coding == nullptr) return;
    coding = *asked.coding;
    const bool chosen =
        by.mode == CodingMode::kOn ||
        (by.mode == CodingMode::kAuto && (coding.chooser == nullptr || coding.chooser->coded()));
    coding.enabled = coding.enabled && chosen && bytes >= by.least_bytes;
    if (coding.totals == nullptr) coding.totals = by.totals;
    options.coding = &coding;
  }
  Decided(const Decided&) = delete;
  Decided& operator=(const Decided&) = delete;

  OperationOptions options;
  Coding coding;
};

class CodedCommunicator final : public Communicator {
 public:
  CodedCommunicator(std::unique_ptr<Communicator> inner, const CodedOptions& options)
      : inner_(std::move(inner)), options_(options) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Ticket Send(std::span<const std::byte> data, int peer, uint32_t channel,
              const OperationOptions& options) override {
    return inner_->Send(data, peer, channel,
                        Decided(options, options_, static_cast<int64_t>(data.size())).options);
  }
  Ticket Recv(std::span<std::byte> data, int peer, uint32_t channel,
              const OperationOptions& options) override {
    return inner_->Recv(data, peer, channel,
                        Decided(options, options_, static_cast<int64_t>(data.size())).options);
  }
  Ticket AllReduce(void* data, int64_t count, tensor::DType dtype, ReduceOp op,
                   const OperationOptions& options) override {
    return inner_->AllReduce(
        data, count, dtype, op,
        Decided(options, options_, count * static_cast<int64_t>(SizeOf(dtype))).options);
  }
  Ticket ReduceScatter(const Sharded& sharded, const OperationOptions& options) override {
    return inner_->ReduceScatter(sharded, Decided(options, options_, BytesOf(sharded)).options);
  }
  Ticket AllGather(const Sharded& sharded, const OperationOptions& options) override {
    return inner_->AllGather(sharded, Decided(options, options_, BytesOf(sharded)).options);
  }
  Ticket Broadcast(std::span<std::byte> data, int root, const OperationOptions& options) override {
    return inner_->Broadcast(data, root, options);
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
  static int64_t BytesOf(const Sharded& sharded) {
    if (sharded.offsets.empty()) return 0;
    return (sharded.offsets.back() - sharded.offsets.front()) *
           static_cast<int64_t>(SizeOf(sharded.dtype));
  }

  std::unique_ptr<Communicator> inner_;
  const CodedOptions options_;
};

class CodedFabric final : public Fabric {
 public:
  CodedFabric(std::unique_ptr<Fabric> inner, const CodedOptions& options)
      : inner_(std::move(inner)), options_(options) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::StatusOr<std::unique_ptr<Communicator>> Group(std::span<const int> ranks,
                                                      std::string_view name,
                                                      const CodingRoom& coding) override {
    ASSIGN_OR_RETURN(auto inner, inner_->Group(ranks, name, coding));
    return std::make_unique<CodedCommunicator>(std::move(inner), options_);
  }
  absl::StatusOr<std::shared_ptr<NodeMemory>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  void WatchWaits(WaitWatcher* watcher) override { inner_->WatchWaits(watcher); }
  absl::Status Close() override { return inner_->Close(); }

 private:
  std::unique_ptr<Fabric> inner_;
  const CodedOptions options_;
};

}  // namespace

std::unique_ptr<Communicator> MakeCodedCommunicator(std::unique_ptr<Communicator> group,
                                                    const CodedOptions& options) {
  return std::make_unique<CodedCommunicator>(std::move(group), options);
}

std::unique_ptr<Fabric> MakeCodedFabric(std::unique_ptr<Fabric> fabric,
                                        const CodedOptions& options) {
  return std::make_unique<CodedFabric>(std::move(fabric), options);
}

}  // namespace trireme::comm
