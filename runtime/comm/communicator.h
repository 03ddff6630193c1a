// Communicator: a group of ranks, point to point and collective, over one Transport. The
// collectives are ours, in one place (collectives.cc), as state machines over send and recv that
// Progress() drives: they have deadlines, a fixed order of summation and the same result bits on
// every rank. Backends differ only in their Transport (local, mpi).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/stream.h"

namespace trireme::comm {

// Names an operation in flight. Trivially copyable; 0 is "nothing", which is always done.
struct Ticket {
  uint64_t id = 0;
};

struct Coding;
class NodeMemory;

enum class ReduceOp : uint8_t { kSum, kMax };

// `data` holds the elements [offsets[0], offsets.back()) of all ranks, rank r's share being
// [offsets[r], offsets[r+1]) in elements. Uneven and empty shares are fine. The memory of `offsets`
// must live until the operation is done.
struct Sharded {
  void* data = nullptr;
  std::span<const int64_t> offsets;
  tensor::DType dtype = tensor::DType::kF32;
  // This rank's own share, where it does not lie in `data` and overlaps nothing of it; null: in its
  // place there. Each rank may do as it likes.
  void* share = nullptr;
};

// How one operation is issued; made of a stream alone where there is nothing else to say.
struct OperationOptions {
  // NOLINTNEXTLINE(google-explicit-constructor): calls give their stream.
  OperationOptions(tensor::Stream& on, const Coding* as = nullptr) : stream(&on), coding(as) {}

  tensor::Stream* stream;
  // How it is coded (runtime/comm/coding.h): a sum or an AllGather of f32, or a message of f32;
  // null: plain. Read at issue. Refused, like a bad call, for anything else, and where the group
  // has no room for coding (CodingRoom).
  const Coding* coding;
  // Gets the steady clock's nanoseconds when the operation is done on this rank, before any wait
  // for it returns; outlives the operation. Null: nowhere.
  int64_t* done_ns = nullptr;
};

// Every call issues: the transfer begins once the stream has run everything issued on it before;
// the buffer belongs to the operation until it is waited for. Order matters: all ranks of the group
// issue its collectives in the same order; messages match first-in first-out per (pair, channel).
// Nothing is allocated per call. Operations fail (and poison the communicator: later calls fail at
// once with the first cause) when a peer is lost, Abort was called or the deadline of a wait
// passed. One thread issues; WaitOn's waiting may run on the stream's thread.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // in this group
  virtual int size() const = 0;

  virtual Ticket Send(std::span<const std::byte> data, int peer, uint32_t channel,
                      const OperationOptions& options) = 0;
  virtual Ticket Recv(std::span<std::byte> data, int peer, uint32_t channel,
                      const OperationOptions& options) = 0;
  // In place over count elements (f64, f32, bf16 or i32). Sums in a fixed order; every rank gets
  // the same bits. bf16 is added in f32 and rounded to bf16 after each addition, or once where
  // several terms are at hand.
  virtual Ticket AllReduce(void* data, int64_t count, tensor::DType dtype, ReduceOp op,
                           const OperationOptions& options) = 0;
  // This rank's share ends as the sum over ranks of what their `data` hold for it; all else of
  // `data` holds garbage afterwards.
  virtual Ticket ReduceScatter(const Sharded& sharded, const OperationOptions& options) = 0;
  // Every share in `data` ends as its owner's, the own one too.
  virtual Ticket AllGather(const Sharded& sharded, const OperationOptions& options) = 0;
  virtual Ticket Broadcast(std::span<std::byte> data, int root,
                           const OperationOptions& options) = 0;

  // Whether sums go through memory that the ranks of the group share, and so are added in another
  // order than by messages. The same on all of its ranks.
  virtual bool SumsInWindow() const = 0;
  // Sums go by messages from now on. All ranks of the group call it, between the same operations.
  virtual void LeaveWindow() = 0;

  // True once done (or failed). Never blocks; makes progress.
  virtual bool Test(Ticket ticket) = 0;
  // Blocks until done; DeadlineExceeded names operation, peer and channel, and poisons.
  virtual absl::Status WaitHost(Ticket ticket, std::chrono::milliseconds deadline) = 0;
  // Work issued on `stream` afterwards runs once the ticket is done. On an inline stream this
  // blocks like WaitHost. A failure is kept and returned by status().
  virtual void WaitOn(Ticket ticket, tensor::Stream& stream,
                      std::chrono::milliseconds deadline) = 0;
  // Drives what is in flight; called between operators. Never blocks.
  virtual void Progress() = 0;
  // First failure, or ok.
  virtual absl::Status status() const = 0;
  // Makes every wait of this and the other groups of the same Fabric on this rank end with `cause`,
  // also from another thread.
  virtual void Abort(absl::Status cause) = 0;
};

// What a group has for coded operations (runtime/comm/coding.h); the same on all of its ranks.
// Memory is taken as it is first used.
struct CodingRoom {
  size_t collective_bytes = 0;  // staging memory of coded collectives; 0: they are refused
  // Coded messages that may be under way in each direction, with about a MiB each; more wait. 0:
  // they are refused.
  size_t messages = 0;
};

// A wait in which nothing has come for a second, or for a fiftieth of its deadline if that is
// longer.
struct VainWait {
  std::chrono::steady_clock::time_point since;  // nothing has come since
  int peer = -1;            // rank of the whole job, of several the lowest; -1: not known
  int awaited = 0;          // how many ranks are waited for
  bool collective = false;  // else a message
  std::string_view group;   // its name
};

// Hears of vain waits: again about once a second while they last, and when they are over. Called
// under the fabric's lock, from any thread that waits; must not block.
class WaitWatcher {
 public:
  virtual ~WaitWatcher() = default;
  virtual void WaitsInVain(const VainWait& wait) = 0;
  virtual void WaitIsOver() = 0;
};

// A rank's connection to all others; makes groups. Ranks are of the whole job.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Collective over `ranks` (ascending, holding this rank), in the same order on all of them.
  // `name` is used in messages. The group's room for coding is the larger of `coding` and what the
  // fabric gives each group.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Group(std::span<const int> ranks,
                                                              std::string_view name,
                                                              const CodingRoom& coding = {}) = 0;
  // Memory that the ranks of a machine reach as their own, `bytes` of it this rank's: collectives
  // whose data lie in the same one on all ranks work in place there. Collective over all ranks, in
  // the same order on all of them as other such calls and collectives; each says its own size, also
  // 0. Each rank releases it in its own time, with nothing of its groups under way, also
  // of operations to which it brings no element.
  virtual absl::StatusOr<std::shared_ptr<NodeMemory>> Allocate(size_t bytes) = 0;
  // Of all groups from now on; null: nobody. Not owned.
  virtual void WatchWaits(WaitWatcher* watcher) = 0;
  // Collective teardown, after all groups are gone.
  virtual absl::Status Close() = 0;
};

}  // namespace trireme::comm
