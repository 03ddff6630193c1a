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
  explicit Exchange(Lane* lane) : lane_(lane) {}

  void Start(const CollectiveCall& call, const Shares& shares) override {
    call_ = call;
    const Shares::Range own = shares[lane_->group().rank];
    reduces_ = call.kind != CollectiveKind::kAllGather;
    mine_ = call.kind == CollectiveKind::kAllReduce ? Shares::Range{0, call.count} : own;
    const size_t mine_bytes = Bytes(mine_);
    const int ranks = lane_->group().size();
    for (int i = 1; i < ranks; ++i) {
      const int from = (lane_->group().rank + ranks - i) % ranks;
      void* into = reduces_ ? Staged(from) : At(shares[from].begin);
      const size_t bytes = reduces_ ? mine_bytes : Bytes(shares[from]);
      if (bytes > 0) lane_->Post(static_cast<size_t>(from), Direction::kRecv, into, bytes, from);
    }
    for (int i = 1; i < ranks; ++i) {
      const int to = (lane_->group().rank + i) % ranks;
      const Shares::Range range = call.kind == CollectiveKind::kReduceScatter ? shares[to] : mine_;
      if (range.count() == 0) continue;
      const size_t slot = static_cast<size_t>(ranks) + static_cast<size_t>(to);
      lane_->Post(slot, Direction::kSend, At(range.begin), Bytes(range), to);
    }
  }

  bool Advance(uint64_t* moved) override {
    if (!lane_->AllFinished()) return false;
    if (reduces_ && mine_.count() > 0) AddUp();
    ++*moved;
    return true;
  }

  void AddAwaited(std::vector<int>* ranks) const override { lane_->AddAwaited(ranks); }

 private:
  std::byte* At(int64_t element) const {
    return call_.data + static_cast<size_t>(element) * SizeOf(call_.dtype);
  }
  size_t Bytes(Shares::Range range) const {
    return static_cast<size_t>(range.count()) * SizeOf(call_.dtype);
  }

  // Where the contribution of rank `q`, another one, is received.
  std::byte* Staged(int q) const {
    const size_t place = static_cast<size_t>(q < lane_->group().rank ? q : q - 1);
    return lane_->Staging(place * Bytes(mine_), Bytes(mine_));
  }

  // ((x0 + x1) + x2) + ...: rank 0's contribution is the accumulator wherever it lies, so all ranks
  // add alike.
  void AddUp() {
    const int rank = lane_->group().rank;
    const size_t bytes = Bytes(mine_);
    const auto contribution = [&](int q) { return q == rank ? At(mine_.begin) : Staged(q); };
    std::byte* sum = contribution(0);
    for (int q = 1; q < lane_->group().size(); ++q) {
      Apply({sum, sum, contribution(q), mine_.count(), call_.dtype, call_.op});
    }
    if (rank != 0) std::memcpy(At(mine_.begin), sum, bytes);
  }

  Lane* lane_;
  CollectiveCall call_;
  Shares::Range mine_;  // what this rank adds up
  bool reduces_ = false;
};

}  // namespace

std::unique_ptr<Algorithm> MakeExchange(Lane* lane) { return std::make_unique<Exchange>(lane); }

}  // namespace trireme::comm
