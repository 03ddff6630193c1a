// Matching, copying and waking between the threads of a hub. A node belongs to its owner again once
// its state is kDone, so nothing touches it after that store.
#include "runtime/comm/local/mailroom.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/text.h"

namespace trireme::comm {

using base::Text;

void MessageList::Append(MessageNode* node) {
  node->next = nullptr;
  (head == nullptr ? head : tail->next) = node;
  tail = node;
}

MessageNode* MessageList::Take(int group, uint32_t channel) {
  for (MessageNode* node = head; node != nullptr; node = node->next) {
    if (node->message.group != group || node->message.channel != channel) continue;
    Remove(node);
    return node;
  }
  return nullptr;
}

void MessageList::Remove(MessageNode* node) {
  MessageNode* before = nullptr;
  for (MessageNode* at = head; at != node; at = at->next) before = at;
  (before == nullptr ? head : before->next) = node->next;
  if (tail == node) tail = before;
}

LocalMailroom::LocalMailroom(int ranks, LocalMode mode) : mode_(mode) {
  for (int r = 0; r < ranks; ++r) boxes_.push_back(std::make_unique<Mailbox>(ranks));
}

void LocalMailroom::Finish(MessageNode* node) {
  const int owner = node->owner;
  node->state.store(MessageState::kDone,
                    std::memory_order_release);  // the owner may reuse the node from here on
  Ring(owner);
}

void LocalMailroom::Deliver(MessageNode* send, MessageNode* recv) {
  const Message& from = send->message;
  const Message& to = recv->message;
  if (from.bytes != to.bytes) {
    Fail(absl::InvalidArgumentError(Text("a message of ", from.bytes, " bytes from rank ", to.peer,
                                         " to rank ", recv->owner, " on channel ", from.channel,
                                         " of group ", from.group, " meets a receive of ", to.bytes,
                                         " bytes")));
  } else if (from.bytes > 0) {
    std::memcpy(to.data, from.data, from.bytes);
  }
  if (send->eager_block >= 0) {
    Mailbox& box = this->box(recv->owner);
    std::lock_guard<std::mutex> lock(box.mutex);
    box.free_eager.push_back(send->eager_block);
  } else {
    Finish(send);
  }
  Finish(recv);
}

void LocalMailroom::Prepare(int rank) {
  Mailbox& box = this->box(rank);
  std::lock_guard<std::mutex> lock(box.mutex);
  if (mode_ != LocalMode::kEager || box.eager_nodes != nullptr) return;
  box.eager_nodes = std::make_unique<MessageNode[]>(kEagerBlocks);
  box.eager_bytes = std::make_unique_for_overwrite<std::byte[]>(kEagerBlocks * kEagerBytes);
  for (int i = kEagerBlocks - 1; i >= 0; --i) box.free_eager.push_back(i);
}

bool LocalMailroom::TryEager(MessageNode* send, Mailbox& box) {
  // A rank that has made no group yet has no room.
  if (send->message.bytes > kEagerBytes || box.free_eager.empty()) return false;
  const int index = box.free_eager.back();
  box.free_eager.pop_back();
  MessageNode& node = box.eager_nodes[static_cast<size_t>(index)];
  node.message = send->message;
  node.message.data = box.eager_bytes.get() + static_cast<size_t>(index) * kEagerBytes;
  node.owner = send->owner;
  node.eager_block = index;
  if (send->message.bytes > 0)
    std::memcpy(node.message.data, send->message.data, send->message.bytes);
  box.sends[static_cast<size_t>(send->owner)].Append(&node);
  send->state.store(MessageState::kDone, std::memory_order_release);
  return true;
}

void LocalMailroom::Post(MessageNode* node) {
  const Message& message = node->message;
  const bool sends = message.direction == Direction::kSend;
  Mailbox& box = this->box(sends ? message.peer : node->owner);
  const size_t source = static_cast<size_t>(sends ? node->owner : message.peer);
  MessageNode* other = nullptr;
  {
    std::lock_guard<std::mutex> lock(box.mutex);
    other = (sends ? box.recvs : box.sends)[source].Take(message.group, message.channel);
    if (other == nullptr) {
      if (sends && TryEager(node, box)) return;
      node->state.store(MessageState::kQueued, std::memory_order_relaxed);
      (sends ? box.sends : box.recvs)[source].Append(node);
      return;
    }
    other->state.store(MessageState::kCopying, std::memory_order_relaxed);
  }
  Deliver(sends ? node : other, sends ? other : node);
}

void LocalMailroom::Withdraw(MessageNode* node) {
  const bool sends = node->message.direction == Direction::kSend;
  Mailbox& box = this->box(sends ? node->message.peer : node->owner);
  const size_t source = static_cast<size_t>(sends ? node->owner : node->message.peer);
  {
    std::lock_guard<std::mutex> lock(box.mutex);
    if (node->state.load(std::memory_order_relaxed) == MessageState::kQueued) {
      (sends ? box.sends : box.recvs)[source].Remove(node);
      node->state.store(MessageState::kDone, std::memory_order_relaxed);
    }
  }
  // The other side is in the middle of a memcpy: short, and it waits for nobody.
  while (node->state.load(std::memory_order_acquire) == MessageState::kCopying)
    std::this_thread::yield();
}

void LocalMailroom::Ring(int rank) {
  Mailbox& box = this->box(rank);
  box.epoch.fetch_add(1, std::memory_order_seq_cst);
  if (box.sleepers.load(std::memory_order_seq_cst) == 0) return;
  std::lock_guard<std::mutex> lock(box.bell_mutex);
  box.bell.notify_all();
}

void LocalMailroom::Fail(const absl::Status& cause) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = cause;
    failed_.store(true, std::memory_order_release);
    met_.notify_all();
  }
  for (int r = 0; r < size(); ++r) Ring(r);
}

absl::Status LocalMailroom::failure() {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

int LocalMailroom::GroupId(const std::vector<int>& ranks, int nth) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int next = static_cast<int>(group_ids_.size());
  return group_ids_.try_emplace({ranks, nth}, next).first->second;
}

std::shared_ptr<std::byte[]> LocalMailroom::GroupWindow(int group, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<std::byte[]>& window = windows_[group];
  // Aligned for the counters in it; value-initialised, hence zero.
  if (window == nullptr) {
    auto* lines = new (std::align_val_t{64}) std::byte[bytes]();
    window = std::shared_ptr<std::byte[]>(
        lines, [](std::byte* p) { ::operator delete[](p, std::align_val_t{64}); });
  }
  return window;
}

absl::StatusOr<LocalMailroom::Parts> LocalMailroom::GatherParts(
    int rank, std::shared_ptr<tensor::HugeMemory> part, std::chrono::milliseconds deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto wait_for = [&](const auto& reached) {
    return met_.wait_for(lock, deadline, [&] { return reached() || !failure_.ok(); }) &&
           failure_.ok();
  };
  parts_.resize(boxes_.size());
  std::shared_ptr<tensor::HugeMemory>& place = parts_[static_cast<size_t>(rank)];
  bool all = wait_for([&] { return place == nullptr; });
  if (all) {
    place = std::move(part);
    ++parts_brought_;
    met_.notify_all();
    all = wait_for([&] { return parts_brought_ == size(); });
  }
  if (!failure_.ok()) return failure_;
  if (!all) {
    return absl::DeadlineExceededError(Text("Allocate: ", parts_brought_, " of ", size(),
                                            " ranks came within ", deadline.count(), " ms"));
  }
  Parts gathered = parts_;
  if (++parts_taken_ == size()) {
    std::fill(parts_.begin(), parts_.end(), nullptr);  // others still look at their places
    parts_brought_ = parts_taken_ = 0;
  }
  met_.notify_all();
  return gathered;
}

absl::Status LocalMailroom::Meet(std::chrono::milliseconds deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (++arrived_ == size()) met_.notify_all();
  const bool all =
      met_.wait_for(lock, deadline, [this] { return arrived_ == size() || !failure_.ok(); });
  if (arrived_ == size()) return absl::OkStatus();
  if (!failure_.ok()) return failure_;
  TRIREME_CHECK(!all);
  return absl::DeadlineExceededError(
      Text("Close: ", arrived_, " of ", size(), " ranks came within ", deadline.count(), " ms"));
}

}  // namespace trireme::comm
