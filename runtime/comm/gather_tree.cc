// GatherTree: AllGather of small shares in large groups, with 2(n-1) messages. Rank r's parent is r
// with its last octal digit other than 0 made 0, so that a subtree is a run of ranks, whose shares
// lie side by side: each rank receives its children's runs where they belong and sends its whole
// run up as one message. Rank 0, which then has everything, broadcasts it. Slots: the receives from
// the children, then the send to the parent.
#include <algorithm>
#include <cstring>

#include "runtime/comm/collectives.h"

namespace trireme::comm {
namespace {

// A run of ranks, first to end - 1, and the rank that it hangs on.
struct Subtree {
  int first = 0;
  int end = 0;
  int parent = 0;
};

// The ranks that `rank` answers for: as many as the value of its last digit's place. Of rank 0 all.
Subtree SubtreeOf(int rank, int ranks) {
  if (rank == 0) return {0, ranks, -1};
  int64_t place = 1;
  while (rank / place % kTreeArity == 0) place *= kTreeArity;
  const int64_t end = std::min<int64_t>(ranks, rank + place);
  const int digit = static_cast<int>(rank / place % kTreeArity);
  return {rank, static_cast<int>(end), rank - static_cast<int>(digit * place)};
}

class GatherTreeRun final : public Algorithm {
 public:
  explicit GatherTreeRun(Lane* lane) : lane_(lane), down_(MakeBroadcast(lane)) {}

  void Start(const CollectiveCall& call, const Shares& shares) override {
    call_ = call;
    call_.root = 0;
    shares_ = shares;
    own_ = SubtreeOf(lane_->group().rank, lane_->group().size());
    const Shares::Range share = shares[own_.first];
    if (share.count() > 0 && call.share != call.At(share.begin))
      std::memcpy(call.At(share.begin), call.share, call.Bytes(share.count()));
    phase_ = Phase::kGather;
    size_t slot = 0;
    // Its own share stands first; the children's subtrees follow each other.
    for (int child = own_.first + 1; child < own_.end;) {
      const Subtree subtree = SubtreeOf(child, lane_->group().size());
      PostRun(slot++, Direction::kRecv, subtree, child);
      child = subtree.end;
    }
    up_slot_ = slot;
    uint64_t ignored = 0;
    Advance(&ignored);
  }

  bool Advance(uint64_t* moved) override {
    if (phase_ == Phase::kGather) {
      for (size_t slot = 0; slot < up_slot_; ++slot) {
        if (!lane_->Finished(slot)) return false;
      }
      ++*moved;
      phase_ = Phase::kUp;
      if (own_.parent >= 0) PostRun(up_slot_, Direction::kSend, own_, own_.parent);
    }
    if (phase_ == Phase::kUp) {
      // The answer is written over what is being sent.
      if (!lane_->Finished(up_slot_)) return false;
      phase_ = Phase::kDown;
      down_->Start(call_, shares_);
    }
    return down_->Advance(moved);
  }

  void AddAwaited(std::vector<int>* ranks) const override { lane_->AddAwaited(ranks); }

 private:
  enum class Phase : uint8_t { kGather, kUp, kDown };

  void PostRun(size_t slot, Direction direction, const Subtree& run, int peer) {
    const int64_t begin = shares_[run.first].begin, end = shares_[run.end - 1].end;
    if (end > begin) lane_->Post(slot, direction, call_.At(begin), call_.Bytes(end - begin), peer);
  }

  Lane* lane_;
  std::unique_ptr<Algorithm> down_;
  CollectiveCall call_;
  Shares shares_;
  Subtree own_;
  size_t up_slot_ = 0;
  Phase phase_ = Phase::kGather;
};

}  // namespace

std::unique_ptr<Algorithm> MakeGatherTree(Lane* lane) {
  return std::make_unique<GatherTreeRun>(lane);
}

}  // namespace trireme::comm
