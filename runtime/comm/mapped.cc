// Mapped: AllReduce, ReduceScatter and AllGather where the data lie, in memory that all ranks of
// the group have mapped. The ranks tell each other on the board where theirs is; rank r then adds
// share r out of all ranks' data, straight into all of them (ReduceScatter: into its own share), or
// copies the others' shares from where they lie; and all wait for each other once more. No piece is
// copied on the way, and nobody waits between the two meetings. If one rank's data lie elsewhere,
// all find so at the first meeting and leave it to another algorithm.
#include "runtime/comm/mapped.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/comm/board.h"
#include "runtime/comm/node_memory.h"
#include "runtime/comm/stream_copy.h"
#include "runtime/comm/sum.h"

namespace trireme::comm {
namespace {

// What a rank posts of its data: of its own share for AllGather.
struct Location {
  uint64_t reaching = 0;  // NodeMemories::Reaching
  int64_t memory = -1;
  int64_t offset = 0;
};
static_assert(sizeof(Location) <= Board::kRoom);

void CopyCached(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

// In Location::memory, of an empty share: wherever the others' are.
constexpr int64_t kAnywhere = -2;

class Mapped final : public MappedAlgorithm {
 public:
  Mapped(const Group* group, Board* board)
      : group_(group),
        board_(board),
        places_(group->ranks.size()),
        terms_(group->ranks.size()),
        targets_(group->ranks.size()) {}

  void Start(const CollectiveCall& call, const Shares& shares) override {
    call_ = call;
    shares_ = shares;
    gathers_ = call.kind == CollectiveKind::kAllGather;
    streams_ = call.Bytes(call.count - own().count()) >= kStreamCopyBytes;
    const size_t bytes = call.Bytes(gathers_ ? own().count() : call.count);
    Location here{.reaching = group_->memories->Reaching(group_->ranks)};
    if (bytes == 0) {
      here.memory = kAnywhere;
    } else {
      const auto place = group_->memories->Find({gathers_ ? call.share : call.data, bytes});
      here.memory = place.memory;
      here.offset = place.offset;
    }
    std::memcpy(board_->Next(), &here, sizeof(here));
    Post();
    phase_ = Phase::kMeet;
  }

  bool Advance(uint64_t* moved) override {
    if (phase_ == Phase::kMeet) {
      if (!board_->AllPosted()) return false;
      ++*moved;
      phase_ = FindData() ? Phase::kWork : Phase::kRefused;
      done_ = own().begin;
      peer_ = 0;
    }
    if (phase_ == Phase::kWork) {
      const bool all = gathers_ ? Copy() : Add();
      board_->CountWork();
      ++*moved;
      if (!all) return false;
      Post();
      phase_ = Phase::kLeave;
    }
    if (phase_ != Phase::kLeave) return false;
    if (board_->AllPosted()) {
      phase_ = Phase::kDone;
      memory_.reset();
      ++*moved;
      return true;
    }
    // The others work.
    const uint64_t work = board_->WorkOfAll();
    if (work != seen_work_) ++*moved;
    seen_work_ = work;
    return false;
  }

  bool refused() const override { return phase_ == Phase::kRefused; }

  void AddAwaited(std::vector<int>* ranks) const override {
    for (int q = 0; q < group_->size(); ++q) {
      if (!board_->HasPosted(q)) ranks->push_back(q);
    }
  }

 private:
  enum class Phase : uint8_t { kMeet, kRefused, kWork, kLeave, kDone };

  Shares::Range own() const { return shares_[group_->rank]; }

  void Post() {
    board_->Post();
    for (int q = 0; q < group_->size(); ++q) {
      if (q != group_->rank) group_->transport->Wake(group_->ranks[static_cast<size_t>(q)]);
    }
  }

  // By what all ranks posted: the same answer on all of them.
  bool FindData() {
    int64_t number = kAnywhere;
    uint64_t reaching = ~uint64_t{0};
    for (int q = 0; q < group_->size(); ++q) {
      Location there;
      std::memcpy(&there, board_->Read(q), sizeof(there));
      reaching &= there.reaching;
      places_[static_cast<size_t>(q)] = nullptr;
      if (there.memory == kAnywhere) continue;
      if (number == kAnywhere) number = there.memory;
      if (there.memory != number) number = -1;
    }
    if (number < 0 || (reaching >> number & 1) == 0) return false;
    memory_ = group_->memories->Get(number);
    for (int q = 0; q < group_->size(); ++q) {
      Location there;
      std::memcpy(&there, board_->Read(q), sizeof(there));
      if (there.memory == kAnywhere) continue;
      std::byte* const begin = memory_->Of(group_->ranks[static_cast<size_t>(q)]);
      places_[static_cast<size_t>(q)] = begin + there.offset;
    }
    return true;
  }

  // Some of the own share; true if it was the last.
  bool Add() {
    const size_t n = places_.size();
    const int64_t most = kWorkPerAdvanceBytes / static_cast<int64_t>(n * SizeOf(call_.dtype));
    const int64_t count = std::min(std::max<int64_t>(most, 1), own().end - done_);
    for (size_t q = 0; q < n; ++q) {
      targets_[q] = places_[q] + call_.Bytes(done_);
      terms_[q] = targets_[q];
    }
    std::byte* const share[] = {call_.share + call_.Bytes(done_ - own().begin)};
    const bool spreads = call_.kind == CollectiveKind::kAllReduce;
    ApplyAll({.terms = terms_,
              .targets = spreads ? std::span<std::byte* const>(targets_) : share,
              .count = count,
              .dtype = call_.dtype,
              .op = call_.op});
    done_ += count;
    return done_ == own().end;
  }

  // Some of the shares, the own one where it is not there yet; true if it was the last.
  bool Copy() {
    size_t budget = static_cast<size_t>(kWorkPerAdvanceBytes);
    for (; peer_ < group_->size(); ++peer_, copied_ = 0) {
      const int q = (group_->rank + peer_) % group_->size();
      std::byte* const to = call_.At(shares_[q].begin);
      const std::byte* const from = peer_ == 0 ? call_.share : places_[static_cast<size_t>(q)];
      const size_t bytes = to == from ? 0 : call_.Bytes(shares_[q].count());
      const size_t now = std::min(budget, bytes - copied_);
      if (now > 0) (streams_ ? StreamCopy : CopyCached)(to + copied_, from + copied_, now);
      copied_ += now;
      budget -= now;
      if (copied_ < bytes) return false;
    }
    return true;
  }

  const Group* group_;
  Board* board_;
  std::vector<std::byte*> places_;  // by rank: where its data begin here; of AllGather, its share
  std::vector<const std::byte*> terms_;
  std::vector<std::byte*> targets_;
  std::shared_ptr<const NodeMemory> memory_;
  CollectiveCall call_;
  Shares shares_;
  Phase phase_ = Phase::kDone;
  bool gathers_ = false;
  bool streams_ = false;  // copies past the caches
  int64_t done_ = 0;      // of the own share, added up to here
  int peer_ = 0;          // of AllGather: the next to copy from, counted from this rank on ...
  size_t copied_ = 0;     // ... and so much of it is copied
  uint64_t seen_work_ = 0;
};

}  // namespace

std::unique_ptr<MappedAlgorithm> MakeMapped(const Group* group, Board* board) {
  return std::make_unique<Mapped>(group, board);
}

}  // namespace trireme::comm
