// Direct: AllReduce and ReduceScatter through the window. Each rank copies its part of a share into
// its slot for the share's owner; the owner adds straight out of the slots, in the order of ranks,
// into its own memory and into its slot of sums; the others copy the sums out. No message per
// piece, and memory is read and written only where the user's buffers lie: the slots stay in the
// cache.
#include <algorithm>
#include <cstring>

#include "runtime/comm/collectives.h"
#include "runtime/comm/sum.h"
#include "runtime/comm/window.h"

namespace trireme::comm {
namespace {

class Direct final : public Algorithm {
 public:
  Direct(const Group* group, Window* window)
      : group_(group),
        window_(window),
        cursors_(group->ranks.size()),
        terms_(group->ranks.size()) {}

  void Start(const CollectiveCall& call, const Shares& shares) override {
    call_ = call;
    shares_ = shares;
    piece_elements_ = static_cast<int64_t>(window_->piece_bytes() / SizeOf(call.dtype));
    spreads_ = call.kind != CollectiveKind::kReduceScatter;
    for (int q = 0; q < group_->size(); ++q) {
      // What is not asked for counts as done.
      cursors_[static_cast<size_t>(q)] = {
          q != rank() ? shares_[q].begin : shares_[q].end,
          spreads_ && q != rank() ? shares_[q].begin : shares_[q].end};
    }
    own_ = shares_[rank()].begin;
    uint64_t ignored = 0;
    Advance(&ignored);
  }

  bool Advance(uint64_t* moved) override {
    const uint64_t before = *moved;
    int64_t budget = kWorkPerAdvanceBytes;
    bool again = true;
    while (again && budget > 0) {
      again = false;
      for (int i = 1; i < group_->size(); ++i)
        again = PutPiece((rank() + i) % group_->size(), &budget) || again;
      again = AddPiece(&budget) || again;
      for (int i = 1; i < group_->size(); ++i)
        again = TakeSum((rank() + i) % group_->size(), &budget) || again;
      if (again) ++*moved;
    }
    if (*moved != before) WakePeers();
    return Done();
  }

  void AddAwaited(std::vector<int>* ranks) const override {
    for (int q = 0; q < group_->size(); ++q) {
      if (q == rank()) continue;
      const Cursor& cursor = cursors_[static_cast<size_t>(q)];
      const bool must_read = cursor.put < shares_[q].end && !window_->RoomForPiece(q);
      const bool must_sum = cursor.take < shares_[q].end && !window_->HasSum(q);
      const bool must_give = own_ < shares_[rank()].end && !window_->HasPiece(q);
      if (must_read || must_sum || must_give) ranks->push_back(q);
    }
    int behind = -1;
    if (own_ < shares_[rank()].end && spreads_ && !window_->RoomForSum(&behind))
      ranks->push_back(behind);
  }

 private:
  // How far the exchange with one other rank is, in elements of its share.
  struct Cursor {
    int64_t put = 0;   // given to it to add
    int64_t take = 0;  // sums taken from it
  };

  int rank() const { return group_->rank; }
  // The elements of the piece of share `owner` that begins at `from`.
  int64_t PieceOf(int owner, int64_t from) const {
    return std::min(piece_elements_, shares_[owner].end - from);
  }

  bool Done() const {
    if (own_ < shares_[rank()].end) return false;
    for (int q = 0; q < group_->size(); ++q) {
      const Cursor& cursor = cursors_[static_cast<size_t>(q)];
      if (cursor.put < shares_[q].end || cursor.take < shares_[q].end) return false;
    }
    return true;
  }

  bool PutPiece(int to, int64_t* budget) {
    int64_t& put = cursors_[static_cast<size_t>(to)].put;
    if (put >= shares_[to].end || !window_->RoomForPiece(to)) return false;
    const int64_t count = PieceOf(to, put);
    std::memcpy(window_->NextPiece(to), call_.At(put), call_.Bytes(count));
    window_->PutPiece(to);
    put += count;
    *budget -= static_cast<int64_t>(call_.Bytes(count));
    return true;
  }

  bool AddPiece(int64_t* budget) {
    if (own_ >= shares_[rank()].end || (spreads_ && !window_->RoomForSum())) return false;
    const int ranks = group_->size();
    for (int q = 0; q < ranks; ++q) {
      if (q != rank() && !window_->HasPiece(q)) return false;
    }
    const int64_t count = PieceOf(rank(), own_);
    const auto contribution = [&](int q) {
      return q == rank() ? call_.At(own_) : window_->Piece(q);
    };
    for (int q = 0; q < ranks; ++q) terms_[static_cast<size_t>(q)] = contribution(q);
    std::byte* const to = call_.share + call_.Bytes(own_ - shares_[rank()].begin);
    std::byte* const targets[] = {to, spreads_ ? window_->NextSum() : nullptr};
    ApplyAll({terms_, {targets, spreads_ ? 2U : 1U}, count, call_.dtype, call_.op});
    if (spreads_) window_->PutSum();
    for (int q = 0; q < ranks; ++q) {
      if (q != rank()) window_->UsedPiece(q);
    }
    own_ += count;
    *budget -= static_cast<int64_t>(call_.Bytes(count)) * (ranks - 1);
    return true;
  }

  bool TakeSum(int from, int64_t* budget) {
    int64_t& take = cursors_[static_cast<size_t>(from)].take;
    if (take >= shares_[from].end || !window_->HasSum(from)) return false;
    const int64_t count = PieceOf(from, take);
    std::memcpy(call_.At(take), window_->Sum(from), call_.Bytes(count));
    window_->UsedSum(from);
    take += count;
    *budget -= static_cast<int64_t>(call_.Bytes(count));
    return true;
  }

  void WakePeers() {
    for (int q = 0; q < group_->size(); ++q) {
      if (q != rank()) group_->transport->Wake(group_->ranks[static_cast<size_t>(q)]);
    }
  }

  const Group* group_;
  Window* window_;
  std::vector<Cursor> cursors_;  // by rank
  std::vector<const std::byte*> terms_;
  CollectiveCall call_;
  Shares shares_;
  int64_t piece_elements_ = 1;
  int64_t own_ = 0;  // added up of this rank's share
  bool spreads_ = false;
};

}  // namespace

std::unique_ptr<Algorithm> MakeDirect(const Group* group, Window* window) {
  return std::make_unique<Direct>(group, window);
}

}  // namespace trireme::comm
