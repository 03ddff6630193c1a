#include "runtime/comm/coded_flow.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::comm {

void FlowMessage::Post(const Group& group, Direction direction, int peer, uint32_t channel,
                       void* data, size_t bytes) {
  TRIREME_CHECK(!request_.valid());
  Message message;
  message.direction = direction;
  message.data = data;
  message.bytes = bytes;
  message.peer = group.ranks[static_cast<size_t>(peer)];
  message.group = group.id;
  message.channel = channel;
  request_ = group.transport->Post(message);
}

bool FlowMessage::Finished(const Group& group) {
  if (!request_.valid()) return true;
  if (!group.transport->Done(request_)) return false;
  request_ = Request{};
  return true;
}

absl::Status FromPeer(const absl::Status& status, const Group& group, int peer) {
  return base::Annotate(status, base::Text("from rank ", group.ranks[static_cast<size_t>(peer)]));
}

InFlow::InFlow(const Group* group, size_t depth, std::byte* buffers, size_t stride)
    : group_(group), slots_(depth) {
  for (size_t i = 0; i < depth; ++i) slots_[i].buffer = buffers + i * stride;
}

void InFlow::Start(const FlowEnd& end, const PieceCursor& cursor) {
  end_ = end;
  cursor_ = cursor;
  posted_ = sized_ = arrived_ = taken_ = 0;
}

absl::Status InFlow::PostContent(Slot* slot) {
  const size_t most =
      slot->piece.coded() ? PieceRoom(static_cast<int64_t>(slot->piece.count())) : slot->bytes;
  if (slot->bytes == 0 || slot->bytes > most) {
    return FromPeer(absl::DataLossError(base::Text("a coded piece of ", slot->bytes,
                                                   " bytes; expected 1 to ", most)),
                    *group_, end_.peer);
  }
  slot->content.Post(*group_, Direction::kRecv, end_.peer, end_.piece_channel, slot->buffer,
                     slot->bytes);
  return absl::OkStatus();
}

absl::Status InFlow::Advance(uint64_t* moved) {
  for (; !cursor_.AtEnd() && posted_ < taken_ + slots_.size(); ++posted_) {
    Slot& slot = slots_[posted_ % slots_.size()];
    slot.piece = cursor_.Next();
    slot.bytes = slot.piece.known_bytes();
    if (!slot.piece.coded()) continue;
    slot.size.Post(*group_, Direction::kRecv, end_.peer, end_.size_channel, &slot.bytes,
                   sizeof(slot.bytes));
  }
  for (; sized_ < posted_; ++sized_) {
    Slot& slot = slots_[sized_ % slots_.size()];
    if (!slot.size.Finished(*group_)) break;
    RETURN_IF_ERROR(PostContent(&slot));
  }
  for (; arrived_ < sized_ && slots_[arrived_ % slots_.size()].content.Finished(*group_);
       ++arrived_) {
    ++*moved;
  }
  return absl::OkStatus();
}

std::span<const std::byte> InFlow::bytes() const {
  const Slot& slot = slots_[taken_ % slots_.size()];
  return {slot.buffer, slot.bytes};
}

void OutFlow::Advance(uint64_t* moved) {
  for (; gone_ < posted_; ++gone_) {
    Slot& slot = slots_[gone_ % slots_.size()];
    // Both are looked at: one that is done gives its request back.
    const bool size_gone = slot.size.Finished(*group_);
    if (!slot.content.Finished(*group_) || !size_gone) return;
    ++*moved;
  }
}

void OutFlow::Send(std::byte* data, size_t bytes, bool coded) {
  TRIREME_CHECK(HasRoom());
  Slot& slot = slots_[posted_++ % slots_.size()];
  slot.bytes = bytes;
  if (coded) {
    slot.size.Post(*group_, Direction::kSend, end_.peer, end_.size_channel, &slot.bytes,
                   sizeof(slot.bytes));
  }
  slot.content.Post(*group_, Direction::kSend, end_.peer, end_.piece_channel, data, bytes);
}

}  // namespace trireme::comm
