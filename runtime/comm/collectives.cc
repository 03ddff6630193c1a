// Shares, lanes, and the algorithms of a lane.
#include "runtime/comm/collectives.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/comm/coded.h"
#include "runtime/comm/mapped.h"
#include "runtime/comm/window.h"

namespace trireme::comm {
namespace {

constexpr int64_t kLineBytes = 64;

}  // namespace

Shares::Shares(const CollectiveCall& call, int ranks) : offsets_(call.offsets), count_(call.count) {
  const int64_t line = std::max<int64_t>(1, kLineBytes / static_cast<int64_t>(SizeOf(call.dtype)));
  even_ = ((call.count + ranks - 1) / ranks + line - 1) / line * line;
  for (int r = 0; r < ranks; ++r) largest_ = std::max(largest_, (*this)[r].count());
}

Shares::Range Shares::operator[](int rank) const {
  const size_t r = static_cast<size_t>(rank);
  if (!offsets_.empty()) return {offsets_[r] - offsets_[0], offsets_[r + 1] - offsets_[0]};
  return {std::min(count_, even_ * rank), std::min(count_, even_ * (rank + 1))};
}

Lane::Lane(const Group* group, size_t staging_bytes)
    : group_(group),
      staging_bytes_(staging_bytes),
      // Left unwritten: pages that no collective touches are never given.
      staging_(new std::byte[staging_bytes]),
      slots_(SlotsFor(group->size())) {}

std::byte* Lane::Staging(size_t offset, size_t bytes) const {
  TRIREME_CHECK(offset <= staging_bytes_ && bytes <= staging_bytes_ - offset);
  return staging_.get() + offset;
}

void Lane::Post(size_t slot, Direction direction, void* data, size_t bytes, int peer) {
  TRIREME_CHECK(slot < slots_.size() && !slots_[slot].request.valid());
  TRIREME_CHECK(bytes <= static_cast<size_t>(kMostPieceBytes));
  Message message;
  message.direction = direction;
  message.data = data;
  message.bytes = bytes;
  message.peer = group_->ranks[static_cast<size_t>(peer)];
  message.group = group_->id;
  message.channel = channel_;
  slots_[slot] = Slot{group_->transport->Post(message), peer};
}

bool Lane::Finished(size_t slot) {
  Slot& entry = slots_[slot];
  if (!entry.request.valid()) return true;
  if (!group_->transport->Done(entry.request)) return false;
  entry.request = Request{};
  return true;
}

bool Lane::AllFinished() {
  bool all = true;
  for (size_t slot = 0; slot < slots_.size(); ++slot) all = Finished(slot) && all;
  return all;
}

void Lane::AddAwaited(std::vector<int>* ranks) const {
  for (const Slot& slot : slots_) {
    if (slot.request.valid()) ranks->push_back(slot.peer);
  }
}

CollectiveRunner::CollectiveRunner(const Group* group, size_t staging_bytes, size_t coding_bytes,
                                   Window* window)
    : lane_(group, staging_bytes),
      window_(window),
      exchange_(MakeExchange(&lane_)),
      tree_(MakeTree(&lane_)),
      gather_tree_(MakeGatherTree(&lane_)),
      ring_(MakeRing(&lane_)),
      broadcast_(MakeBroadcast(&lane_)) {
  if (window != nullptr) {
    board_ = MakeOnBoard(group, &window->board());
    direct_ = MakeDirect(group, window);
    mapped_ = MakeMapped(group, &window->board());
  }
  if (coding_bytes > 0 && group->size() > 1) coded_ = MakeCoded(group, coding_bytes);
}
CollectiveRunner::~CollectiveRunner() = default;

CallShape CollectiveRunner::ShapeOf(const CollectiveCall& call, const Shares& shares) const {
  const int64_t element_bytes = static_cast<int64_t>(SizeOf(call.dtype));
  return {.kind = call.kind,
          .ranks = lane_.group().size(),
          .bytes = call.count * element_bytes,
          .largest_share_bytes = shares.largest() * element_bytes,
          .staging_bytes = static_cast<int64_t>(lane_.staging_bytes()),
          .coded = call.coding != nullptr,
          .window = window_ != nullptr,
          .node_memory = call.node_memory};
}

bool CollectiveRunner::WantsWindow(const CollectiveCall& call) const {
  return RunsInWindow(Choose(ShapeOf(call, Shares(call, lane_.group().size()))));
}

bool CollectiveRunner::in_window() const {
  return running_ != nullptr &&
         (running_ == board_.get() || running_ == direct_.get() || running_ == mapped_.get());
}

Algorithm* CollectiveRunner::Of(AlgorithmKind kind) const {
  switch (kind) {
    case AlgorithmKind::kNone:
      return nullptr;
    case AlgorithmKind::kExchange:
      return exchange_.get();
    case AlgorithmKind::kTree:
      return tree_.get();
    case AlgorithmKind::kGatherTree:
      return gather_tree_.get();
    case AlgorithmKind::kRing:
      return ring_.get();
    case AlgorithmKind::kBroadcast:
      return broadcast_.get();
    case AlgorithmKind::kBoard:
      return board_.get();
    case AlgorithmKind::kDirect:
      return direct_.get();
    case AlgorithmKind::kMapped:
      return mapped_.get();
    case AlgorithmKind::kCoded:
      return coded_.get();
  }
  return nullptr;
}

void CollectiveRunner::Start(const CollectiveCall& call, uint32_t channel) {
  const Shares shares(call, lane_.group().size());
  lane_.SetChannel(channel);
  call_ = call;
  call_.channel = channel;
  const Shares::Range own = shares[lane_.group().rank];
  if (call.share == nullptr) call_.share = call.At(own.begin);
  shape_ = ShapeOf(call, shares);
  running_ = Of(Choose(shape_));
  if (running_ != nullptr) {
    running_->Start(call_, shares);
  } else if (own.count() > 0 && call_.share != call.At(own.begin)) {
    const bool adds = call.kind == CollectiveKind::kReduceScatter;
    std::memcpy(adds ? call_.share : call.At(own.begin), adds ? call.At(own.begin) : call_.share,
                call.Bytes(own.count()));
  }
  const bool adds = call.kind != CollectiveKind::kAllGather;
  const bool spreads = call.kind != CollectiveKind::kReduceScatter;
  if (call.kind == CollectiveKind::kBroadcast) return;
  plain_bytes_ =
      static_cast<int64_t>(call.Bytes((adds ? call.count - own.count() : 0) +
                                      (spreads ? own.count() * (lane_.group().size() - 1) : 0)));
}

absl::Status CollectiveRunner::fault() const {
  return running_ != nullptr && running_ == coded_.get() ? coded_->fault() : absl::OkStatus();
}

CodingReport CollectiveRunner::report() const {
  if (running_ != nullptr && running_ == coded_.get()) return coded_->report();
  CodingReport report;
  report.plain_bytes = report.coded_bytes = running_ == nullptr ? 0 : plain_bytes_;
  return report;
}

bool CollectiveRunner::Advance(uint64_t* moved) {
  if (running_ == nullptr || running_->Advance(moved)) return true;
  if (running_ == mapped_.get() && mapped_->refused()) {
    shape_.node_memory = false;  // and nothing else, which may differ by now: all choose the same
    running_ = Of(Choose(shape_));
    running_->Start(call_, Shares(call_, lane_.group().size()));
  }
  return false;
}

void CollectiveRunner::AddAwaited(std::vector<int>* ranks) const {
  if (running_ != nullptr) running_->AddAwaited(ranks);
}

}  // namespace trireme::comm
