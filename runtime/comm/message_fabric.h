// MessageFabric: the Fabric and Communicator of every backend that has a Transport. Holds the
// operations in flight of a rank's groups, starts them when their stream is ready, moves them, and
// turns silence into DeadlineExceeded.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/node_memory.h"
#include "runtime/comm/transport.h"

namespace trireme::comm {

struct FabricOptions {
  // Operations that a group may have in flight; one more is an error. More than a plan has in
  // flight (64 buckets, 384 transfers) and the tasks that an asynchronous stream may be behind
  // (1,024).
  size_t operations = 2048;
  // Collectives of a group that run at a time; later ones wait for their turn.
  size_t lanes = 2;
  // Staging memory of a lane, for messages that are received and added. At least 64 KiB.
  size_t staging_bytes = 1 << 20;
  // Shared memory per rank of a group whose ranks can map it, in which the larger sums run; 0 for
  // none. A piece is window_bytes / (2 * ranks), and none is made when that is below 512 bytes.
  size_t window_bytes = 0;
  // What each group has at least; collective_bytes is of a lane.
  CodingRoom coding;
};

// Enough for coded pieces of full size in groups of up to 10 ranks.
inline constexpr size_t kCodingBytes = size_t{32} << 20;

class GroupCommunicator;

// What the groups of a rank have in common. The mutex guards them all: one thread issues, streams'
// threads may poll.
struct FabricState {
  explicit FabricState(std::unique_ptr<Transport> transport_in)
      : transport(std::move(transport_in)) {}

  // Keeps the first cause and takes the transport down.
  void Poison(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Moves everything that is in flight on this rank, so that a wait in one group serves the peers
  // of another. True if anything moved: there may be more to do at once.
  bool Progress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  std::unique_ptr<Transport> transport;
  std::mutex mutex;
  absl::Status failure ABSL_GUARDED_BY(mutex);
  std::vector<GroupCommunicator*> groups ABSL_GUARDED_BY(mutex);
  NodeMemories memories ABSL_GUARDED_BY(mutex);
  WaitWatcher* waits ABSL_GUARDED_BY(mutex) = nullptr;
};

class MessageFabric final : public Fabric {
 public:
  MessageFabric(std::unique_ptr<Transport> transport, FabricOptions options);
  ~MessageFabric() override;

  int rank() const override { return state_->transport->rank(); }
  int size() const override { return state_->transport->size(); }
  // InvalidArgument for ranks that are not ascending, outside the job, or without this rank.
  absl::StatusOr<std::unique_ptr<Communicator>> Group(std::span<const int> ranks,
                                                      std::string_view name,
                                                      const CodingRoom& coding) override;
  absl::StatusOr<std::shared_ptr<NodeMemory>> Allocate(size_t bytes) override;
  void WatchWaits(WaitWatcher* watcher) override;
  absl::Status Close() override;
  // Poisons this rank from any thread; what Communicator::Abort does, without a group.
  void Abort(const absl::Status& cause);

 private:
  std::shared_ptr<FabricState> state_;
  FabricOptions options_;
};

}  // namespace trireme::comm
