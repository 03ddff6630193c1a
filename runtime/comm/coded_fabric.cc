#include "runtime/comm/coded_fabric.h"

#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/comm/coding_switch.h"

namespace trireme::comm {
namespace {

class CodedCommunicator final : public Communicator {
 public:
  CodedCommunicator(std::unique_ptr<Communicator> inner, const CodedOptions& options)
      : inner_(std::move(inner)), options_(options) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Ticket Send(std::span<const std::byte> data, int peer, uint32_t channel,
              tensor::Stream& stream) override {
    Decide(static_cast<int64_t>(data.size()));
    return inner_->Send(data, peer, channel, stream);
  }
  Ticket Recv(std::span<std::byte> data, int peer, uint32_t channel,
              tensor::Stream& stream) override {
    Decide(static_cast<int64_t>(data.size()));
    return inner_->Recv(data, peer, channel, stream);
  }
  Ticket AllReduce(void* data, int64_t count, tensor::DType dtype, ReduceOp op,
                   tensor::Stream& stream) override {
    Decide(count * static_cast<int64_t>(SizeOf(dtype)));
    return inner_->AllReduce(data, count, dtype, op, stream);
  }
  Ticket ReduceScatter(const Sharded& sharded, tensor::Stream& stream) override {
    Decide(BytesOf(sharded));
    return inner_->ReduceScatter(sharded, stream);
  }
  Ticket AllGather(const Sharded& sharded, tensor::Stream& stream) override {
    Decide(BytesOf(sharded));
    return inner_->AllGather(sharded, stream);
  }
  Ticket Broadcast(std::span<std::byte> data, int root, tensor::Stream& stream) override {
    next_.reset();
    return inner_->Broadcast(data, root, stream);
  }
  void StampNext(int64_t* done_ns) override { inner_->StampNext(done_ns); }
  void CodeNext(const Coding* coding) override {
    next_.reset();
    if (coding != nullptr) next_ = *coding;
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

  // By what all ranks, and both sides of a message, know alike.
  void Decide(int64_t bytes) {
    if (!next_.has_value()) return;
    const bool chosen = options_.mode == CodingMode::kOn ||
                        (options_.mode == CodingMode::kAuto &&
                         (next_->chooser == nullptr || next_->chooser->coded()));
    next_->enabled = next_->enabled && chosen && bytes >= options_.least_bytes;
    if (next_->totals == nullptr) next_->totals = options_.totals;
    inner_->CodeNext(&*next_);
    next_.reset();
  }

  std::unique_ptr<Communicator> inner_;
  const CodedOptions options_;
  std::optional<Coding> next_;
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
