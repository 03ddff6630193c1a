// Segmented ring over n ranks. Step s sends one share to the right while another comes from the
// left; n-1 steps that add, then n-1 that only pass on. Shares travel in pieces, and a piece is
// sent on as soon as it has been added, so the ring is busy on all links at once. The share sent in
// step s is the one received in step s-1: that is the whole trick.
//   steps that add:     send (r-1-s), receive (r-2-s); after n-1 of them rank r holds the sum of
//   share r,
//                       added in the fixed order r+1, r+2, ..., r
//   steps that pass on: send (r-g), receive (r-1-g)
#include <algorithm>
#include <cstring>

#include "runtime/comm/collectives.h"
#include "runtime/comm/sum.h"

namespace trireme::comm {
namespace {

class Ring final : public Algorithm {
 public:
  explicit Ring(Lane* lane) : lane_(lane) {}

  void Start(const CollectiveCall& call, const Shares& shares) override {
    call_ = call;
    shares_ = shares;
    const int turn = lane_->group().size() - 1;
    adding_steps_ = call.kind == CollectiveKind::kAllGather ? 0 : turn;
    steps_ = adding_steps_ + (call.kind == CollectiveKind::kReduceScatter ? 0 : turn);
    // An AllGather needs no staging.
    piece_bytes_ = static_cast<size_t>(
        RingPieceBytes(adding_steps_ > 0, static_cast<int64_t>(lane_->staging_bytes())));
    piece_elements_ = static_cast<int64_t>(piece_bytes_ / SizeOf(call.dtype));
    to_send_ = sent_ = First(-1);
    to_post_ = to_take_ = First(0);
    uint64_t ignored = 0;
    Advance(&ignored);
  }

  bool Advance(uint64_t* moved) override {
    int64_t budget = kWorkPerAdvanceBytes;
    bool again = true;
    while (again && budget > 0) {
      again = PostRecvs();
      again = TakeOne(&budget, moved) || again;
      again = PostSends(&budget, moved) || again;
      again = RetireSends(moved) || again;
    }
    return to_take_.step == steps_ && sent_.step == steps_ - 1;
  }

  void AddAwaited(std::vector<int>* ranks) const override { lane_->AddAwaited(ranks); }

 private:
  // A piece by the step that receives it; the step before sends it. `number` counts pieces and
  // picks the slot.
  struct Cursor {
    int step = 0;
    int64_t piece = 0;
    size_t number = 0;
    bool Before(const Cursor& other) const {
      return step < other.step || (step == other.step && piece < other.piece);
    }
  };

  int Left() const {
    return (lane_->group().rank + lane_->group().size() - 1) % lane_->group().size();
  }
  int Right() const { return (lane_->group().rank + 1) % lane_->group().size(); }

  // The share received in `step`; -1 is the one this rank starts with.
  int ShareOf(int step) const {
    const int back = step < adding_steps_ ? step + 2 : step - adding_steps_ + 1;
    const int n = lane_->group().size();
    // Before the first step: r-1 when adding comes first, r when it does not.
    const int from_start = step < 0 ? (adding_steps_ > 0 ? 1 : 0) : back;
    return ((lane_->group().rank - from_start) % n + n) % n;
  }
  int64_t PiecesOf(int step) const {
    return (shares_[ShareOf(step)].count() + piece_elements_ - 1) / piece_elements_;
  }
  // The end of sends is step steps_ - 1: what is received in the last step is not sent on.
  Cursor SkipEmpty(Cursor cursor, int end) const {
    while (cursor.step < end && cursor.piece == PiecesOf(cursor.step))
      cursor = {cursor.step + 1, 0, cursor.number};
    return cursor;
  }
  Cursor First(int step) const { return SkipEmpty({step, 0, 0}, step < 0 ? steps_ - 1 : steps_); }
  Cursor Next(Cursor cursor, int end) const {
    return SkipEmpty({cursor.step, cursor.piece + 1, cursor.number + 1}, end);
  }
  Shares::Range RangeOf(const Cursor& cursor) const {
    const Shares::Range share = shares_[ShareOf(cursor.step)];
    const int64_t begin = share.begin + cursor.piece * piece_elements_;
    return {begin, std::min(share.end, begin + piece_elements_)};
  }
  // Of the own share, where that lies.
  std::byte* AtOwn(int64_t element) const {
    return call_.share + call_.Bytes(element - shares_[lane_->group().rank].begin);
  }
  std::byte* Staged(const Cursor& cursor) const {
    return lane_->Staging(cursor.number % kRingDepth * piece_bytes_, piece_bytes_);
  }

  bool PostRecvs() {
    bool any = false;
    while (to_post_.step < steps_ && to_post_.number < to_take_.number + kRingDepth) {
      const bool adds = to_post_.step < adding_steps_;
      const int passing = to_post_.step - adding_steps_;
      // Passing on writes the share that adding step `passing` sent away: that must be done (sent_
      // counts a send by the step that received its piece, one less).
      if (!adds && adding_steps_ > 0 && sent_.step < passing) return any;
      const Shares::Range range = RangeOf(to_post_);
      lane_->Post(to_post_.number % kRingDepth, Direction::kRecv,
                  adds ? Staged(to_post_) : call_.At(range.begin), call_.Bytes(range.count()),
                  Left());
      to_post_ = Next(to_post_, steps_);
      any = true;
    }
    return any;
  }

  bool TakeOne(int64_t* budget, uint64_t* moved) {
    if (!to_take_.Before(to_post_) || !lane_->Finished(to_take_.number % kRingDepth)) return false;
    const Shares::Range range = RangeOf(to_take_);
    if (to_take_.step < adding_steps_) {
      std::byte* const here = call_.At(range.begin);
      std::byte* const to = to_take_.step == adding_steps_ - 1 ? AtOwn(range.begin) : here;
      Apply({to, Staged(to_take_), here, range.count(), call_.dtype, call_.op});
      *budget -= static_cast<int64_t>(call_.Bytes(range.count()));
    }
    to_take_ = Next(to_take_, steps_);
    ++*moved;
    return true;
  }

  bool PostSends(int64_t* budget, uint64_t* moved) {
    bool any = false;
    while (to_send_.step < steps_ - 1 && to_send_.number < sent_.number + kRingDepth &&
           (to_send_.step < 0 || to_send_.Before(to_take_))) {
      const Shares::Range range = RangeOf(to_send_);
      const size_t bytes = call_.Bytes(range.count());
      std::byte* const here = call_.At(range.begin);
      std::byte* const from = to_send_.step < 0 && adding_steps_ == 0 ? AtOwn(range.begin) : here;
      if (from != here && *budget <= 0) break;
      lane_->Post(kRingDepth + to_send_.number % kRingDepth, Direction::kSend, from, bytes,
                  Right());
      if (from != here) {
        std::memcpy(here, from, bytes);
        *budget -= static_cast<int64_t>(bytes);
        ++*moved;
      }
      to_send_ = Next(to_send_, steps_ - 1);
      any = true;
    }
    return any;
  }

  bool RetireSends(uint64_t* moved) {
    bool any = false;
    while (sent_.Before(to_send_) && lane_->Finished(kRingDepth + sent_.number % kRingDepth)) {
      sent_ = Next(sent_, steps_ - 1);
      ++*moved;
      any = true;
    }
    return any;
  }

  Lane* lane_;
  size_t piece_bytes_ = 0;
  CollectiveCall call_;
  Shares shares_;
  int64_t piece_elements_ = 1;
  int adding_steps_ = 0;
  int steps_ = 0;
  Cursor to_post_;  // next receive to post
  Cursor to_take_;  // next receive to finish
  Cursor to_send_;  // next send to post
  Cursor sent_;     // next send to finish
};

}  // namespace

std::unique_ptr<Algorithm> MakeRing(Lane* lane) { return std::make_unique<Ring>(lane); }

}  // namespace trireme::comm
