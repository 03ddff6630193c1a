// The Transport of ranks that are threads: a rank's pool of messages, matched in the hub's
// mailroom.
#include "runtime/comm/local/local_fabric.h"

#include <algorithm>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/local/mailroom.h"
#include "runtime/comm/node_memory.h"
#include "runtime/comm/transport.h"

namespace trireme::comm {

using base::Text;
namespace {

class LocalNodeMemory final : public NodeMemory {
 public:
  LocalNodeMemory(LocalMailroom::Parts parts, int rank) : parts_(std::move(parts)), rank_(rank) {}
  std::span<std::byte> own() const override { return parts_[static_cast<size_t>(rank_)]->span(); }
  std::byte* Of(int rank) const override { return parts_[static_cast<size_t>(rank)]->data(); }

 private:
  const LocalMailroom::Parts parts_;
  const int rank_;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalMailroom> room, int rank, const LocalOptions& options)
      : room_(std::move(room)), rank_(rank), options_(options) {}
  ~LocalTransport() override { WithdrawAll(-1); }

  int rank() const override { return rank_; }
  int size() const override { return room_->size(); }

  absl::StatusOr<TransportGroup> AddGroup(const TransportGroupSpec& spec) override {
    std::vector<int> ranks(spec.ranks.begin(), spec.ranks.end());
    room_->Prepare(rank_);
    TransportGroup group;
    group.id = room_->GroupId(ranks, groups_made_[ranks]++);
    if (spec.window_bytes > 0) {
      windows_[group.id] = room_->GroupWindow(group.id, spec.window_bytes);
      group.window = {windows_[group.id].get(), spec.window_bytes};
    }
    free_.reserve(nodes_.size() + spec.requests);
    for (size_t i = 0; i < spec.requests; ++i) {
      nodes_.emplace_back().owner = rank_;
      free_.push_back(static_cast<int32_t>(nodes_.size()) - 1);
    }
    return group;
  }

  void RemoveGroup(int group) override { WithdrawAll(group); }

  absl::StatusOr<std::shared_ptr<NodeMemory>> Allocate(size_t bytes) override {
    ASSIGN_OR_RETURN(tensor::HugeMemory part, tensor::HugeMemory::Map(bytes));
    ASSIGN_OR_RETURN(
        auto parts, room_->GatherParts(rank_, std::make_shared<tensor::HugeMemory>(std::move(part)),
                                       options_.close_deadline));
    return std::make_shared<LocalNodeMemory>(std::move(parts), rank_);
  }

  Request Post(const Message& message) override {
    TRIREME_CHECK(!free_.empty());
    const int32_t index = free_.back();
    free_.pop_back();
    MessageNode& node = nodes_[static_cast<size_t>(index)];
    node.message = message;
    room_->Post(&node);
    return Request{index};
  }

  bool Done(Request request) override {
    MessageNode& node = nodes_[static_cast<size_t>(request.index)];
    if (node.state.load(std::memory_order_acquire) != MessageState::kDone) return false;
    node.state.store(MessageState::kIdle, std::memory_order_relaxed);
    free_.push_back(request.index);
    return true;
  }

  absl::Status Poll() override { return room_->failure(); }
  size_t max_message_bytes() const override { return options_.max_message_bytes; }

  uint64_t Epoch() const override {
    return room_->box(rank_).epoch.load(std::memory_order_seq_cst);
  }
  void Sleep(uint64_t epoch, int, std::chrono::microseconds at_most) override {
    Mailbox& box = room_->box(rank_);
    std::unique_lock<std::mutex> lock(box.bell_mutex);
    box.sleepers.fetch_add(1, std::memory_order_seq_cst);
    box.bell.wait_for(lock, at_most,
                      [&] { return box.epoch.load(std::memory_order_seq_cst) != epoch; });
    box.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  void Wake(int rank) override { room_->Ring(rank); }

  void Abort(const absl::Status& cause) override {
    WithdrawAll(-1);
    room_->Fail(
        absl::UnavailableError(Text("lost rank ", rank_, ": ", std::string(cause.message()))));
  }
  absl::Status Close() override { return room_->Meet(options_.close_deadline); }

 private:
  // Of one group, or of all for -1.
  void WithdrawAll(int group) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      MessageNode& node = nodes_[i];
      if (node.state.load(std::memory_order_acquire) == MessageState::kIdle) continue;
      if (group >= 0 && node.message.group != group) continue;
      room_->Withdraw(&node);
      node.state.store(MessageState::kIdle, std::memory_order_relaxed);
      free_.push_back(static_cast<int32_t>(i));
    }
  }

  std::shared_ptr<LocalMailroom> room_;
  const int rank_;
  const LocalOptions options_;
  std::deque<MessageNode> nodes_;  // a deque, because peers hold pointers to queued nodes
  std::vector<int32_t> free_;
  std::map<std::vector<int>, int> groups_made_;  // by ranks
  std::map<int, std::shared_ptr<std::byte[]>> windows_;
};

}  // namespace

LocalHub::LocalHub(int ranks, LocalOptions options)
    : mailroom_(std::make_shared<LocalMailroom>(ranks, options.mode)), options_(options) {
  TRIREME_CHECK(ranks > 0);
}

LocalHub::~LocalHub() = default;

int LocalHub::size() const { return mailroom_->size(); }

std::unique_ptr<Fabric> LocalHub::Rank(int rank) {
  TRIREME_CHECK(rank >= 0 && rank < size());
  return std::make_unique<MessageFabric>(
      std::make_unique<LocalTransport>(mailroom_, rank, options_), options_.fabric);
}

std::vector<absl::Status> RunRanks(int ranks, const std::function<absl::Status(Fabric&)>& run,
                                   LocalOptions options) {
  LocalHub hub(ranks, options);
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int r = 0; r < ranks; ++r) fabrics.push_back(hub.Rank(r));
  const auto run_rank = [&](int r) {
    const size_t i = static_cast<size_t>(r);
    statuses[i] = run(*fabrics[i]);
    if (!statuses[i].ok()) static_cast<MessageFabric*>(fabrics[i].get())->Abort(statuses[i]);
  };
  std::vector<std::thread> threads;
  for (int r = 1; r < ranks; ++r) threads.emplace_back(run_rank, r);
  run_rank(0);
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace trireme::comm
