// Transport: what a backend gives the communicator. Messages of bytes between two ranks, posted and
// tested, never waited for; a place to sleep until something may have changed; and, where the ranks
// of a group share memory, a window. Everything else (collectives, tickets, streams, deadlines)
// stands once, above it, in message_fabric.cc.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::comm {

class NodeMemory;

// A posted message; the index into the transport's pool.
struct Request {
  int32_t index = -1;
  bool valid() const { return index >= 0; }
};

enum class Direction : uint8_t { kSend, kRecv };

// One message. Matches the other side's first unmatched message of the same (pair, group, channel);
// the bytes must be equal on both sides.
struct Message {
  Direction direction = Direction::kSend;
  void* data = nullptr;
  size_t bytes = 0;
  int peer = 0;  // of the whole job
  int group = 0;
  uint32_t channel = 0;  // runtime/comm/channels.h
};

// What AddGroup gives.
struct TransportGroup {
  int id = 0;
  // Memory that every rank of the group maps, zero-filled, in one size for all; empty if they do
  // not share a machine.
  std::span<std::byte> window;
};

struct TransportGroupSpec {
  std::span<const int> ranks;  // of the whole job, ascending, holding this rank
  std::string_view name;       // for messages
  size_t requests = 0;      // messages this group may have posted at a time; the pool grows by it
  size_t window_bytes = 0;  // of shared memory wanted for the whole group; 0: none
};

// A rank's end. Calls are made under the fabric's lock, except Epoch, Sleep and Wake, which any
// thread may make at any time. Nothing blocks except AddGroup, Allocate and Close (bounded by the
// backend's set-up deadline) and Sleep.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective over the group's ranks.
  virtual absl::StatusOr<TransportGroup> AddGroup(const TransportGroupSpec& spec) = 0;
  // Local. Withdraws what the group still has posted: its buffers are not touched afterwards (by a
  // backend that can promise it; MPI cannot, and after a failure its process ends).
  virtual void RemoveGroup(int group) = 0;

  // Of Fabric::Allocate. Collective over all ranks.
  virtual absl::StatusOr<std::shared_ptr<NodeMemory>> Allocate(size_t bytes) = 0;

  virtual Request Post(const Message& message) = 0;
  // True once done: the request is then gone. A failed request never becomes done; Poll tells.
  virtual bool Done(Request request) = 0;
  // Moves what is in flight; not ok once a peer or the transport is lost.
  virtual absl::Status Poll() = 0;
  // The largest part of a caller's message that one Post may carry; the same on all ranks. Messages
  // of collectives and coded ones have up to kMostPieceBytes (choice.h), which all transports
  // carry.
  virtual size_t max_message_bytes() const = 0;

  // Sleep returns when something may have happened since `epoch` was read, or after `at_most`.
  // `idle_rounds` counts the caller's fruitless looks in a row: a polling backend spins first, then
  // yields, then sleeps.
  virtual uint64_t Epoch() const = 0;
  virtual void Sleep(uint64_t epoch, int idle_rounds, std::chrono::microseconds at_most) = 0;
  // Wakes the sleepers of `rank` (its own, or a peer whose window was written).
  virtual void Wake(int rank) = 0;

  // Withdraws everything and lets peers know if the backend can.
  virtual void Abort(const absl::Status& cause) = 0;
  // Collective teardown.
  virtual absl::Status Close() = 0;
};

}  // namespace trireme::comm
