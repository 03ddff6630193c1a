// OnBoard: small collectives that every rank posts whole and reads from everybody. One hop, and
// nothing but a few lines of memory: no message, no copy but into the post.
#include <cstring>

#include "runtime/comm/board.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/sum.h"

namespace trireme::comm {
namespace {

class OnBoard final : public Algorithm {
 public:
  OnBoard(const Group* group, Board* board)
      : group_(group), board_(board), terms_(group->ranks.size()) {}

  void Start(const CollectiveCall& call, const Shares& shares) override {
    call_ = call;
    shares_ = shares;
    adds_ = call.kind != CollectiveKind::kAllGather;
    // An empty post where there is nothing to say.
    const size_t bytes = call.Bytes(adds_ ? call.count : own().count());
    if (bytes > 0) std::memcpy(board_->Next(), adds_ ? call.data : call.share, bytes);
    board_->Post();
    for (int q = 0; q < group_->size(); ++q) {
      if (q != group_->rank) group_->transport->Wake(group_->ranks[static_cast<size_t>(q)]);
    }
  }

  bool Advance(uint64_t* moved) override {
    if (!board_->AllPosted()) return false;
    if (adds_) {
      AddUp();
    } else {
      for (int q = 0; q < group_->size(); ++q) {
        const size_t bytes = call_.Bytes(shares_[q].count());
        if (bytes > 0) std::memcpy(call_.At(shares_[q].begin), board_->Read(q), bytes);
      }
    }
    ++*moved;
    return true;
  }

  void AddAwaited(std::vector<int>* ranks) const override {
    for (int q = 0; q < group_->size(); ++q) {
      if (!board_->HasPosted(q)) ranks->push_back(q);
    }
  }

 private:
  Shares::Range own() const { return shares_[group_->rank]; }

  // In the order of ranks, so that all add alike.
  void AddUp() {
    const bool all = call_.kind == CollectiveKind::kAllReduce;
    const Shares::Range mine = all ? Shares::Range{0, call_.count} : own();
    for (int q = 0; q < group_->size(); ++q)
      terms_[static_cast<size_t>(q)] = board_->Read(q) + call_.Bytes(mine.begin);
    std::byte* const targets[] = {all ? call_.data : call_.share};
    ApplyAll({terms_, targets, mine.count(), call_.dtype, call_.op});
  }

  const Group* group_;
  Board* board_;
  std::vector<const std::byte*> terms_;
  CollectiveCall call_;
  Shares shares_;
  bool adds_ = false;
};

}  // namespace

std::unique_ptr<Algorithm> MakeOnBoard(const Group* group, Board* board) {
  return std::make_unique<OnBoard>(group, board);
}

}  // namespace trireme::comm
