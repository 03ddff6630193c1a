// The collectives as state machines: Start states the work, Advance moves it as far as it goes
// without waiting. Each algorithm adds in an order fixed by the ranks alone, and every element's
// sum is made by one rank only (or by all in the same order), so the result bits are the same on
// all ranks and in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/choice.h"
#include "runtime/comm/coding.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/transport.h"

namespace trireme::comm {

class Board;
class CodedAlgorithm;
class MappedAlgorithm;
class NodeMemories;
class Window;

// What is asked for. Elements are counted from `data`.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::byte* data = nullptr;
  int64_t count = 0;
  tensor::DType dtype = tensor::DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::span<const int64_t> offsets;  // of ReduceScatter and AllGather
  std::byte* share = nullptr;        // this rank's own; an algorithm is told where, in place too
  const Coding* coding = nullptr;    // null: plain. Else f32 sums and AllGather
  uint32_t channel = 0;              // of its messages; set when it starts
  bool node_memory = false;          // the fabric had made some when it was issued

  size_t Bytes(int64_t elements) const {
    return static_cast<size_t>(elements) * tensor::SizeOf(dtype);
  }
  std::byte* At(int64_t element) const { return data + Bytes(element); }
};

// Which elements are whose: by the call's offsets, or cut evenly at cache lines.
class Shares {
 public:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t count() const { return end - begin; }
  };
  Shares() = default;
  Shares(const CollectiveCall& call, int ranks);
  Range operator[](int rank) const;
  int64_t largest() const { return largest_; }

 private:
  std::span<const int64_t> offsets_;
  int64_t count_ = 0;
  int64_t even_ = 0;  // elements a rank, when there are no offsets
  int64_t largest_ = 0;
};

// The group as an algorithm sees it; ranks are the group's.
struct Group {
  Transport* transport = nullptr;
  int id = 0;
  int rank = 0;
  std::vector<int> ranks;                  // of the whole job
  const NodeMemories* memories = nullptr;  // of the fabric
  int size() const { return static_cast<int>(ranks.size()); }
};

// What one running collective may use: staging memory and numbered open messages, allocated when
// the group is made. Each algorithm gives the slots its own meaning; all are finished when it
// starts and when it ends.
class Lane {
 public:
  Lane(const Group* group, size_t staging_bytes);

  const Group& group() const { return *group_; }
  size_t staging_bytes() const { return staging_bytes_; }
  // `bytes` of the staging memory from `offset` on, all of which lie in it.
  std::byte* Staging(size_t offset, size_t bytes) const;

  void SetChannel(uint32_t channel) { channel_ = channel; }
  // Posts a message of `slot`, which must be finished, to or from the group's rank `peer`.
  void Post(size_t slot, Direction direction, void* data, size_t bytes, int peer);
  // True once the slot's message is done, and while it has none.
  bool Finished(size_t slot);
  bool AllFinished();
  // Adds the group's ranks whose messages are outstanding.
  void AddAwaited(std::vector<int>* ranks) const;

  static size_t SlotsFor(int ranks) { return 2 * static_cast<size_t>(ranks) + 64; }

 private:
  struct Slot {
    Request request;
    int peer = -1;
  };
  const Group* group_;
  size_t staging_bytes_;
  std::unique_ptr<std::byte[]> staging_;
  std::vector<Slot> slots_;
  uint32_t channel_ = 0;
};

// What one Advance works through at most, so that a Progress between two operators stays short.
inline constexpr int64_t kWorkPerAdvanceBytes = 1 << 20;

// One algorithm in a lane. Objects live as long as the group and are started again and again.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void Start(const CollectiveCall& call, const Shares& shares) = 0;
  // Moves as far as possible without waiting (at most about a MiB of work); true once all is done
  // on this rank.
  // `*moved` counts up with every piece, for deadlines.
  virtual bool Advance(uint64_t* moved) = 0;
  virtual void AddAwaited(std::vector<int>* ranks) const = 0;
};

// What they are for: runtime/comm/choice.h.
// Everybody sends to everybody and adds in the order of ranks.
std::unique_ptr<Algorithm> MakeExchange(Lane* lane);
// Up a tree of eight children a node and down again: sums of small messages. A ReduceScatter leaves
// the sums of all shares on all ranks.
std::unique_ptr<Algorithm> MakeTree(Lane* lane);
// AllGather of small shares: up a tree to rank 0, and everything down again.
std::unique_ptr<Algorithm> MakeGatherTree(Lane* lane);
// Segmented ring: every link carries 2(n-1)/n of the bytes, sums start before a share has fully
// arrived.
std::unique_ptr<Algorithm> MakeRing(Lane* lane);
// Broadcast: in pieces down a tree or along a chain.
std::unique_ptr<Algorithm> MakeBroadcast(Lane* lane);
// In shared memory, for groups that have a window; one at a time in a group. What is posted at
// once.
std::unique_ptr<Algorithm> MakeOnBoard(const Group* group, Board* board);
// Sums in pieces.
std::unique_ptr<Algorithm> MakeDirect(const Group* group, Window* window);

// A lane with its algorithms: one per call, by the choice of choice.h.
class CollectiveRunner {
 public:
  // `coding_bytes` 0: no coded calls.
  CollectiveRunner(const Group* group, size_t staging_bytes, size_t coding_bytes, Window* window);
  ~CollectiveRunner();
  // True if the call would begin in the window (of which a group has only one).
  bool WantsWindow(const CollectiveCall& call) const;
  // Whether the running call, which began there, is still there.
  bool in_window() const;
  // Of the calls that start from now on.
  void LeaveWindow() { window_ = nullptr; }
  void Start(const CollectiveCall& call, uint32_t channel);
  bool Advance(uint64_t* moved);
  void AddAwaited(std::vector<int>* ranks) const;
  // Damage that a coded call met, naming the peer; it then stays unfinished.
  absl::Status fault() const;
  // Of the call that was started last; without its times where it is plain.
  CodingReport report() const;

 private:
  CallShape ShapeOf(const CollectiveCall& call, const Shares& shares) const;
  Algorithm* Of(AlgorithmKind kind) const;

  Lane lane_;
  Window* window_;
  std::unique_ptr<Algorithm> exchange_, tree_, gather_tree_, ring_, broadcast_, board_, direct_;
  std::unique_ptr<CodedAlgorithm> coded_;
  std::unique_ptr<MappedAlgorithm> mapped_;
  Algorithm* running_ = nullptr;
  CollectiveCall call_;      // that runs
  CallShape shape_;          // by which it was chosen
  int64_t plain_bytes_ = 0;  // that this rank sends if the call is plain
};

}  // namespace trireme::comm
