// LocalMailroom: what the ranks of a hub share. Messages wait in lists per (destination, source);
// the destination's mutex guards its lists and never while bytes are copied, except for the small
// eager messages.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/comm/transport.h"
#include "runtime/tensor/memory.h"

namespace trireme::comm {

enum class MessageState : uint8_t { kIdle, kQueued, kCopying, kDone };

// A posted message; lives in its rank's pool, or in an eager block of the mailbox. Linked while
// kQueued.
struct MessageNode {
  Message message;
  int owner = 0;  // the rank that posted it
  std::atomic<MessageState> state{MessageState::kIdle};
  int eager_block = -1;
  MessageNode* next = nullptr;
};

struct MessageList {
  MessageNode* head = nullptr;
  MessageNode* tail = nullptr;
  void Append(MessageNode* node);
  // Takes out the first of (group, channel), or null.
  MessageNode* Take(int group, uint32_t channel);
  void Remove(MessageNode* node);
};

inline constexpr size_t kEagerBytes = 4096;
inline constexpr int kEagerBlocks =
    64;  // per destination; a sender that finds none waits for the receiver

struct Mailbox {
  explicit Mailbox(int ranks)
      : sends(static_cast<size_t>(ranks)), recvs(static_cast<size_t>(ranks)) {}

  std::mutex mutex;
  std::vector<MessageList> sends ABSL_GUARDED_BY(mutex);  // by source: sent, not yet received
  std::vector<MessageList> recvs
      ABSL_GUARDED_BY(mutex);  // by source: receives posted, nothing sent yet
  // Small messages whose senders have gone on: their nodes, and their bytes, unwritten until used.
  std::unique_ptr<MessageNode[]> eager_nodes ABSL_GUARDED_BY(mutex);
  std::unique_ptr<std::byte[]> eager_bytes ABSL_GUARDED_BY(mutex);
  std::vector<int> free_eager ABSL_GUARDED_BY(mutex);

  // The bell of the rank's sleepers. A ringer bumps the epoch, then looks for sleepers; a sleeper
  // counts itself, then looks at the epoch: one of them sees the other.
  std::atomic<uint64_t> epoch{0};
  std::atomic<int> sleepers{0};
  std::mutex bell_mutex;
  std::condition_variable bell;
};

class LocalMailroom {
 public:
  LocalMailroom(int ranks, LocalMode mode);

  int size() const { return static_cast<int>(boxes_.size()); }
  Mailbox& box(int rank) { return *boxes_[static_cast<size_t>(rank)]; }

  // Makes the rank's room for eager messages, if there is none yet.
  void Prepare(int rank);
  // Matches `node` or queues it. `node->state` becomes kDone when its bytes have moved, perhaps
  // within the call.
  void Post(MessageNode* node);
  // Takes `node` back, unless it is done; returns when nobody touches its buffer any more.
  void Withdraw(MessageNode* node);

  void Ring(int rank);
  void Fail(const absl::Status& cause);
  absl::Status failure();

  // The same number on every rank for the nth group over the same ranks.
  int GroupId(const std::vector<int>& ranks, int nth);
  // Memory shared by the ranks of a group, made by the first to ask.
  std::shared_ptr<std::byte[]> GroupWindow(int group, size_t bytes);
  // Every rank's part of the nth node memory, by rank; blocks like Meet, until all have brought it.
  using Parts = std::vector<std::shared_ptr<tensor::HugeMemory>>;
  absl::StatusOr<Parts> GatherParts(int rank, std::shared_ptr<tensor::HugeMemory> part,
                                    std::chrono::milliseconds deadline);
  // Blocks until all ranks have come, or one has failed.
  absl::Status Meet(std::chrono::milliseconds deadline);

 private:
  bool TryEager(MessageNode* send, Mailbox& box) ABSL_EXCLUSIVE_LOCKS_REQUIRED(box.mutex);
  void Deliver(MessageNode* send, MessageNode* recv);
  void Finish(MessageNode* node);

  const LocalMode mode_;
  std::vector<std::unique_ptr<Mailbox>> boxes_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable met_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::vector<int>, int>, int> group_ids_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::shared_ptr<std::byte[]>> windows_ ABSL_GUARDED_BY(mutex_);
  // Of the node memory that is being gathered; a rank that comes for the next one waits until all
  // have taken this one.
  Parts parts_ ABSL_GUARDED_BY(mutex_);
  int parts_brought_ ABSL_GUARDED_BY(mutex_) = 0;
  int parts_taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trireme::comm
