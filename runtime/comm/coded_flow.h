// Flows: the pieces of one kind between this rank and one peer, in order, some under way at a time.
// A coded piece is two messages, its size (8 bytes) and its bytes, on channels of their own, so
// that sizes run ahead; one that is not coded, whose size both sides know, is its bytes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/comm/coded_pieces.h"
#include "runtime/comm/collectives.h"

namespace trireme::comm {

// Where a flow's messages go.
struct FlowEnd {
  int peer = 0;  // of the group
  uint32_t size_channel = 0;
  uint32_t piece_channel = 0;
};

// A message that may be outstanding.
class FlowMessage {
 public:
  void Post(const Group& group, Direction direction, int peer, uint32_t channel, void* data,
            size_t bytes);
  // True once done, and while there is none.
  bool Finished(const Group& group);
  bool outstanding() const { return request_.valid(); }

 private:
  Request request_;
};

// Receives pieces. Not started: has none.
class InFlow {
 public:
  // `buffers` of `stride` bytes each, one for each piece under way.
  InFlow(const Group* group, size_t depth, std::byte* buffers, size_t stride);

  void Start(const FlowEnd& end, const PieceCursor& cursor);
  // Posts what there is room for. DataLoss, naming the peer, for a size that cannot be.
  absl::Status Advance(uint64_t* moved);
  // The first piece that has come and was not taken.
  bool HasPiece() const { return taken_ < arrived_; }
  const CodedPiece& piece() const { return slots_[taken_ % slots_.size()].piece; }
  std::span<const std::byte> bytes() const;
  void Take() { ++taken_; }
  bool Done() const { return cursor_.AtEnd() && taken_ == posted_; }
  bool Awaits() const { return arrived_ < posted_; }
  bool AllPosted() const { return cursor_.AtEnd() && sized_ == posted_; }

 private:
  struct Slot {
    CodedPiece piece;
    FlowMessage size, content;
    uint64_t bytes = 0;
    std::byte* buffer = nullptr;
  };

  absl::Status PostContent(Slot* slot);

  const Group* group_;
  FlowEnd end_;
  PieceCursor cursor_;
  std::vector<Slot> slots_;
  // Pieces: asked for, of known size, here, used.
  uint64_t posted_ = 0, sized_ = 0, arrived_ = 0, taken_ = 0;
};

// Sends pieces from buffers that stay untouched until the piece has gone.
class OutFlow {
 public:
  OutFlow(const Group* group, size_t depth) : group_(group), slots_(depth) {}

  void Start(const FlowEnd& end) { end_ = end; }
  void Advance(uint64_t* moved);
  bool HasRoom() const { return posted_ < gone_ + slots_.size(); }
  // Of the next piece: its place among as many buffers as the flow is deep.
  size_t next() const { return posted_ % slots_.size(); }
  // Needs room.
  void Send(std::byte* data, size_t bytes, bool coded);
  bool AllGone() const { return posted_ == gone_; }

 private:
  struct Slot {
    FlowMessage size, content;
    uint64_t bytes = 0;
  };

  const Group* group_;
  FlowEnd end_;
  std::vector<Slot> slots_;
  uint64_t posted_ = 0, gone_ = 0;
};

// What `status` is, of a piece that came from the group's rank `peer`.
absl::Status FromPeer(const absl::Status& status, const Group& group, int peer);

}  // namespace trireme::comm
