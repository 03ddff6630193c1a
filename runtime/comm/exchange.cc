// Exchange: every rank sends to every other and adds what came in the order of ranks. One hop.
// Slots: a receive from rank q in slot q, a send to it in slot n + q. Staging memory holds the
// other ranks' contributions alone, n-1 of them one after another: that is what the choice counts.
#include <cstring>

#include "runtime/comm/collectives.h"
#include "runtime/comm/sum.h"

namespace trireme::comm {
namespace {

class Exchange final : public Algorithm {
 public:
  explicit Exchange(Lane* lane) : lane_(lane), terms_(static_cast<size_t>(lane->group().size())) {}

  void Start(const CollectiveCall& call, const Shares& shares) override {
    call_ = call;
    reduces_ = call.kind != CollectiveKind::kAllGather;
    mine_ = shares[lane_->group().rank];
    if (call.kind == CollectiveKind::kAllReduce) {
      mine_ = {0, call.count};
      call_.share = call.data;
    }
    const size_t mine_bytes = call.Bytes(mine_.count());
    const int ranks = lane_->group().size();
    for (int i = 1; i < ranks; ++i) {
      const int from = (lane_->group().rank + ranks - i) % ranks;
      void* into = reduces_ ? Staged(from) : call.At(shares[from].begin);
      const size_t bytes = reduces_ ? mine_bytes : call.Bytes(shares[from].count());
      if (bytes > 0) lane_->Post(static_cast<size_t>(from), Direction::kRecv, into, bytes, from);
    }
    for (int i = 1; i < ranks; ++i) {
      const int to = (lane_->group().rank + i) % ranks;
      const Shares::Range range = call.kind == CollectiveKind::kReduceScatter ? shares[to] : mine_;
      if (range.count() == 0) continue;
      const size_t slot = static_cast<size_t>(ranks) + static_cast<size_t>(to);
      lane_->Post(slot, Direction::kSend, reduces_ ? call.At(range.begin) : call.share,
                  call.Bytes(range.count()), to);
    }
    if (!reduces_ && mine_bytes > 0 && call.share != call.At(mine_.begin))
      std::memcpy(call.At(mine_.begin), call.share, mine_bytes);
  }

  bool Advance(uint64_t* moved) override {
    if (!lane_->AllFinished()) return false;
    if (reduces_ && mine_.count() > 0) AddUp();
    ++*moved;
    return true;
  }

  void AddAwaited(std::vector<int>* ranks) const override { lane_->AddAwaited(ranks); }

 private:
  // Where the contribution of rank `q`, another one, is received.
  std::byte* Staged(int q) const {
    const size_t place = static_cast<size_t>(q < lane_->group().rank ? q : q - 1);
    const size_t bytes = call_.Bytes(mine_.count());
    return lane_->Staging(place * bytes, bytes);
  }

  // In the order of ranks, so that all add alike.
  void AddUp() {
    for (int q = 0; q < lane_->group().size(); ++q) {
      const bool own = q == lane_->group().rank;
      terms_[static_cast<size_t>(q)] = own ? call_.At(mine_.begin) : Staged(q);
    }
    std::byte* const targets[] = {call_.share};
    ApplyAll({terms_, targets, mine_.count(), call_.dtype, call_.op});
  }

  Lane* lane_;
  std::vector<const std::byte*> terms_;  // by rank
  CollectiveCall call_;
  Shares::Range mine_;  // what this rank adds up
  bool reduces_ = false;
};

}  // namespace

std::unique_ptr<Algorithm> MakeExchange(Lane* lane) { return std::make_unique<Exchange>(lane); }

}  // namespace trireme::comm
