// Trees of kTreeArity children a node: Broadcast (in pieces; a chain is a tree of one child a
// node), and sums of small messages towards rank 0 and a broadcast back. Node i's children are
// kTreeArity*i + 1 ...; a sum adds them in that order.
#include <algorithm>
#include <cstring>

#include "runtime/comm/collectives.h"
#include "runtime/comm/sum.h"

namespace trireme::comm {
namespace {

constexpr size_t kArity = kTreeArity;
constexpr size_t kTreeDepth = kBroadcastDepth;
constexpr size_t kPieceBytes = kBroadcastPieceBytes;
// Slots: pieces received, then the sends of piece p to child c, then the sums from the children and
// to the parent.
constexpr size_t kSendSlots = kTreeDepth;
constexpr size_t kSumSlots = kSendSlots + kTreeDepth * kArity;
static_assert(kSumSlots + kArity + 1 <= 64, "Lane::SlotsFor leaves 64 slots beside those per rank");

// This rank's place in a tree whose node 0 is `root`.
struct Place {
  int node = 0;
  int arity = 1;
  int ranks = 1;
  int root = 0;
  int first_child() const { return arity * node + 1; }
  int children() const { return std::clamp(ranks - first_child(), 0, arity); }
  int parent() const { return (node - 1) / arity; }
  int RankOf(int of_node) const { return (of_node + root) % ranks; }
};

Place PlaceOf(const Group& group, int root, int arity) {
  return Place{(group.rank - root + group.size()) % group.size(), arity, group.size(), root};
}

class BroadcastRun final : public Algorithm {
 public:
  explicit BroadcastRun(Lane* lane) : lane_(lane) {}

  void Start(const CollectiveCall& call, const Shares&) override {
    data_ = call.data;
    bytes_ = call.Bytes(call.count);
    const bool chain = static_cast<int64_t>(bytes_) > BroadcastTreeBytes(lane_->group().size());
    place_ = PlaceOf(lane_->group(), call.root, chain ? 1 : kTreeArity);
    pieces_ = (bytes_ + kPieceBytes - 1) / kPieceBytes;
    posted_ = here_ = sent_ = 0;
    uint64_t ignored = 0;
    Advance(&ignored);
  }

  bool Advance(uint64_t* moved) override {
    if (place_.node == 0) {
      here_ = pieces_;
    } else {
      while (posted_ < pieces_ && posted_ < here_ + kTreeDepth) PostRecv();
      while (here_ < posted_ && lane_->Finished(here_ % kTreeDepth)) {
        ++here_;
        ++*moved;
        if (posted_ < pieces_) PostRecv();
      }
    }
    while (sent_ < here_ && PostSends()) ++*moved;
    return here_ == pieces_ && sent_ == pieces_ && lane_->AllFinished();
  }

  void AddAwaited(std::vector<int>* ranks) const override { lane_->AddAwaited(ranks); }

 private:
  size_t PieceBytes(size_t piece) const {
    return std::min(kPieceBytes, bytes_ - piece * kPieceBytes);
  }

  void PostRecv() {
    lane_->Post(posted_ % kTreeDepth, Direction::kRecv, data_ + posted_ * kPieceBytes,
                PieceBytes(posted_), place_.RankOf(place_.parent()));
    ++posted_;
  }

  // Sends piece sent_ to all children; false while an older piece occupies the slots.
  bool PostSends() {
    const size_t first_slot = kSendSlots + sent_ % kTreeDepth * kArity;
    for (int c = 0; c < place_.children(); ++c) {
      if (!lane_->Finished(first_slot + static_cast<size_t>(c))) return false;
    }
    for (int c = 0; c < place_.children(); ++c) {
      lane_->Post(first_slot + static_cast<size_t>(c), Direction::kSend,
                  data_ + sent_ * kPieceBytes, PieceBytes(sent_),
                  place_.RankOf(place_.first_child() + c));
    }
    ++sent_;
    return true;
  }

  Lane* lane_;
  Place place_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t pieces_ = 0;
  size_t posted_ = 0;  // receives posted
  size_t here_ = 0;    // pieces arrived
  size_t sent_ = 0;    // pieces given to the children
};

class TreeRun final : public Algorithm {
 public:
  explicit TreeRun(Lane* lane) : lane_(lane), down_(lane) {}

  void Start(const CollectiveCall& call, const Shares& shares) override {
    call_ = call;
    call_.root = 0;
    shares_ = shares;
    place_ = PlaceOf(lane_->group(), 0, kArity);
    phase_ = Phase::kSum;
    for (int c = 0; c < place_.children(); ++c) {
      lane_->Post(kSumSlots + static_cast<size_t>(c), Direction::kRecv, Staged(c), Bytes(),
                  place_.first_child() + c);
    }
    uint64_t ignored = 0;
    Advance(&ignored);
  }

  bool Advance(uint64_t* moved) override {
    if (phase_ == Phase::kSum) {
      for (int c = 0; c < place_.children(); ++c) {
        if (!lane_->Finished(kSumSlots + static_cast<size_t>(c))) return false;
      }
      for (int c = 0; c < place_.children(); ++c) {
        Apply({call_.data, call_.data, Staged(c), call_.count, call_.dtype, call_.op});
      }
      ++*moved;
      phase_ = Phase::kUp;
      if (place_.node > 0)
        lane_->Post(kSumSlots + kArity, Direction::kSend, call_.data, Bytes(), place_.parent());
    }
    if (phase_ == Phase::kUp) {
      // The answer is written over what is being sent.
      if (!lane_->Finished(kSumSlots + kArity)) return false;
      phase_ = Phase::kDown;
      down_.Start(call_, shares_);
    }
    if (!down_.Advance(moved)) return false;
    const Shares::Range own = shares_[lane_->group().rank];
    if (own.count() > 0 && call_.share != call_.At(own.begin))
      std::memcpy(call_.share, call_.At(own.begin), call_.Bytes(own.count()));
    return true;
  }

  void AddAwaited(std::vector<int>* ranks) const override { lane_->AddAwaited(ranks); }

 private:
  enum class Phase : uint8_t { kSum, kUp, kDown };

  size_t Bytes() const { return call_.Bytes(call_.count); }
  std::byte* Staged(int child) const {
    return lane_->Staging(static_cast<size_t>(child) * Bytes(), Bytes());
  }

  Lane* lane_;
  BroadcastRun down_;
  CollectiveCall call_;
  Shares shares_;
  Place place_;
  Phase phase_ = Phase::kSum;
};

}  // namespace

std::unique_ptr<Algorithm> MakeTree(Lane* lane) { return std::make_unique<TreeRun>(lane); }
std::unique_ptr<Algorithm> MakeBroadcast(Lane* lane) {
  return std::make_unique<BroadcastRun>(lane);
}

}  // namespace trireme::comm
