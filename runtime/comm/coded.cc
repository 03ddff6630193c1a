// Pieces flow in four kinds: contributions out (to the owners of the other shares) and in (to this
// rank's share), sums in and out. The k-th piece of the own share is summed once all peers' k-th
// contributions are here; a buffer of sums is used again once it has gone to all. Receives are
// posted whatever else waits, so no rank can block another but by its own silence.
#include "runtime/comm/coded.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "compress/stream_sum.h"
#include "runtime/base/check.h"
#include "runtime/comm/channels.h"
#include "runtime/comm/coded_flow.h"
#include "runtime/comm/sum.h"

namespace trireme::comm {
namespace {

constexpr int64_t kLeastPieceValues = 256;
constexpr int kFewRanks = 8;

// Buffers: contributions out and in, sums in, of each peer; sums out and one own contribution.
size_t BuffersFor(int ranks, size_t depth) {
  return (3 * static_cast<size_t>(ranks - 1) + 1) * depth + 1;
}
size_t DepthFor(int ranks) { return ranks <= kFewRanks ? 4 : 2; }

// Each of these messages in a range of channels of its own.
enum FlowKind : uint32_t { kContributionSize, kContribution, kSumSize, kSum };
static_assert(kSum < kCollectiveRanges);

class Coded final : public CodedAlgorithm {
 public:
  Coded(const Group* group, size_t staging_bytes)
      : group_(group),
        room_(CodedRoomFor(group->size(), staging_bytes)),
        staging_(new std::byte[BuffersFor(group->size(), room_.depth) * room_.piece_bytes]),
        scratch_(new float[static_cast<size_t>(room_.piece_values)]),
        adder_(static_cast<size_t>(group->size())),
        terms_(static_cast<size_t>(group->size())),
        to_contribute_(static_cast<size_t>(group->size())) {
    TRIREME_CHECK(room_.piece_values > 0);
    size_t buffer = 0;
    for (int peer = 0; peer < group->size(); ++peer) {
      const bool self = peer == group->rank;
      contribution_buffers_.push_back(Buffer(buffer));
      buffer += self ? 0 : room_.depth;
      contributions_in_.emplace_back(group, room_.depth, Buffer(buffer), room_.piece_bytes);
      buffer += self ? 0 : room_.depth;
      sums_in_.emplace_back(group, room_.depth, Buffer(buffer), room_.piece_bytes);
      buffer += self ? 0 : room_.depth;
      contributions_out_.emplace_back(group, room_.depth);
      sums_out_.emplace_back(group, room_.depth);
    }
    sum_buffers_ = Buffer(buffer);
    own_buffer_ = Buffer(buffer + room_.depth);
  }

  void Start(const CollectiveCall& call, const Shares& shares) override {
    data_ = reinterpret_cast<float*>(call.data);
    share_ = reinterpret_cast<float*>(call.share);
    share_begin_ = shares[group_->rank].begin;
    adds_ = call.kind != CollectiveKind::kAllGather;
    spreads_ = call.kind != CollectiveKind::kReduceScatter;
    measures_ = call.coding->measure_error;
    channel_ = call.channel;
    fault_ = absl::OkStatus();
    report_ = CodingReport{};
    report_.coded = true;
    sums_made_ = 0;
    const auto cursor = [&](int rank) {
      const Shares::Range share = shares[rank];
      return PieceCursor(call.coding->runs, share.begin, share.end,
                         std::clamp<int64_t>(call.coding->piece_values, 1, room_.piece_values));
    };
    own_ = cursor(group_->rank);
    for (int peer = 0; peer < group_->size(); ++peer) {
      if (peer == group_->rank) continue;
      const size_t p = static_cast<size_t>(peer);
      to_contribute_[p] = adds_ ? cursor(peer) : PieceCursor();
      contributions_out_[p].Start(EndOf(peer, kContributionSize));
      contributions_in_[p].Start(EndOf(peer, kContributionSize),
                                 adds_ ? cursor(group_->rank) : PieceCursor());
      sums_out_[p].Start(EndOf(peer, kSumSize));
      sums_in_[p].Start(EndOf(peer, kSumSize), spreads_ ? cursor(peer) : PieceCursor());
    }
    uint64_t ignored = 0;
    MoveMessages(&ignored);
  }

  bool Advance(uint64_t* moved) override {
    int64_t budget = kWorkPerAdvanceBytes;
    bool again = true;
    while (again && fault_.ok()) {
      MoveMessages(moved);
      again = false;
      if (!fault_.ok() || budget <= 0) break;
      again = TakeSums(&budget) || again;
      again = MakeSum(&budget) || again;
      again = Contribute(&budget) || again;
    }
    return fault_.ok() && AllDone();
  }

  // Who has not contributed holds up the others' sums too: only they are named, if there are any.
  void AddAwaited(std::vector<int>* ranks) const override {
    const size_t before = ranks->size();
    ForPeers([&](int peer, size_t p) {
      if (contributions_in_[p].Awaits() || !contributions_out_[p].AllGone()) {
        ranks->push_back(peer);
      }
    });
    if (ranks->size() > before) return;
    ForPeers([&](int peer, size_t p) {
      if (sums_in_[p].Awaits() || !sums_out_[p].AllGone()) ranks->push_back(peer);
    });
  }

  const absl::Status& fault() const override { return fault_; }
  const CodingReport& report() const override { return report_; }

 private:
  std::byte* Buffer(size_t number) const { return staging_.get() + number * room_.piece_bytes; }
  FlowEnd EndOf(int peer, FlowKind size_kind) const {
    return {peer, ChannelInRange(channel_, size_kind), ChannelInRange(channel_, size_kind + 1)};
  }
  // Beginning on the right, so that not all ranks begin with the same one.
  template <typename Call>
  void ForPeers(Call call) const {
    for (int i = 1; i < group_->size(); ++i) {
      const int peer = (group_->rank + i) % group_->size();
      call(peer, static_cast<size_t>(peer));
    }
  }

  void MoveMessages(uint64_t* moved) {
    ForPeers([&](int, size_t p) {
      contributions_out_[p].Advance(moved);
      sums_out_[p].Advance(moved);
      if (fault_.ok()) fault_ = contributions_in_[p].Advance(moved);
      if (fault_.ok()) fault_ = sums_in_[p].Advance(moved);
    });
  }

  // The k-th piece of each peer's share, where it is here.
  bool TakeSums(int64_t* budget) {
    bool any = false;
    ForPeers([&](int peer, size_t p) {
      InFlow& sums = sums_in_[p];
      if (!sums.HasPiece() || *budget <= 0 || !fault_.ok()) return;
      const CodecTimer timer(&report_.codec_ns);
      const CodedPiece& piece = sums.piece();
      fault_ = FromPeer(DecodePiece(piece, sums.bytes(), data_ + piece.begin), *group_, peer);
      *budget -= static_cast<int64_t>(piece.plain_bytes());
      sums.Take();
      any = true;
    });
    return any;
  }

  bool MakeSum(int64_t* budget) {
    if (own_.AtEnd() || *budget <= 0 || !fault_.ok()) return false;
    bool ready = true;
    ForPeers([&](int, size_t p) {
      ready = ready && (!adds_ || contributions_in_[p].HasPiece()) &&
              (!spreads_ || sums_out_[p].HasRoom());
    });
    if (!ready) return false;
    const CodedPiece piece = own_.Next();
    std::byte* sum = sum_buffers_ + sums_made_++ % room_.depth * room_.piece_bytes;
    const size_t bytes = piece.plain() ? SumPlain(piece, sum) : SumCoded(piece, sum);
    *budget -= static_cast<int64_t>(piece.plain_bytes());
    if (!fault_.ok()) return false;
    ForPeers([&](int, size_t p) {
      if (adds_) contributions_in_[p].Take();
      if (spreads_) Send(piece, sum, bytes, &sums_out_[p]);
    });
    return true;
  }

  // Where a piece of the own share comes from, and where its result belongs.
  float* SourceOf(const CodedPiece& piece) const {
    return adds_ ? data_ + piece.begin : share_ + (piece.begin - share_begin_);
  }
  float* TargetOf(const CodedPiece& piece) const {
    return spreads_ ? data_ + piece.begin : share_ + (piece.begin - share_begin_);
  }

  // The sum's bytes to `sum` and its values where they belong.
  size_t SumCoded(const CodedPiece& piece, std::byte* sum) {
    const CodecTimer timer(&report_.codec_ns);
    const float* own = SourceOf(piece);
    size_t bytes = EncodePiece(piece, own, scratch_.get(), adds_ ? own_buffer_ : sum);
    Measure(piece, own, {adds_ ? own_buffer_ : sum, bytes});
    if (adds_) {
      ForPeers([&](int, size_t p) { terms_[p] = contributions_in_[p].bytes(); });
      terms_[static_cast<size_t>(group_->rank)] = {own_buffer_, bytes};
      if (piece.bf16) {
        SumBf16(terms_, {TargetOf(piece), piece.count()});
        if (!spreads_) return bytes;
        // Of all ranks, also the owner: what it keeps is what it sends.
        RoundToBf16({TargetOf(piece), piece.count()}, sum);
        WidenBf16(sum, {TargetOf(piece), piece.count()});
        return bytes;
      }
      const auto added =
          adder_.Add(terms_, {piece.count(), piece.quantiser}, {sum, room_.piece_bytes});
      if (!added.ok()) {
        fault_ = FromPeer(added.status(), *group_, static_cast<int>(adder_.culprit()));
        return 0;
      }
      bytes = *added;
    }
    const absl::Status own_sum = DecodePiece(piece, {sum, bytes}, TargetOf(piece));
    TRIREME_CHECK(own_sum.ok());
    return bytes;
  }

  // ((x0 + x1) + x2) + ...
  size_t SumPlain(const CodedPiece& piece, std::byte* sum) {
    const auto count = static_cast<int64_t>(piece.count());
    const auto* own = reinterpret_cast<const std::byte*>(SourceOf(piece));
    const auto contribution = [&](int rank) -> const std::byte* {
      return rank == group_->rank ? own
                                  : contributions_in_[static_cast<size_t>(rank)].bytes().data();
    };
    if (adds_) {
      Apply({sum, contribution(0), contribution(1), count});
      for (int rank = 2; rank < group_->size(); ++rank) {
        Apply({sum, sum, contribution(rank), count});
      }
    } else {
      std::memcpy(sum, own, piece.plain_bytes());
    }
    std::memcpy(TargetOf(piece), sum, piece.plain_bytes());
    return piece.plain_bytes();
  }

  bool Contribute(int64_t* budget) {
    bool any = false;
    ForPeers([&](int, size_t p) {
      OutFlow& flow = contributions_out_[p];
      if (to_contribute_[p].AtEnd() || !flow.HasRoom() || *budget <= 0) return;
      const CodedPiece piece = to_contribute_[p].Next();
      std::byte* buffer = contribution_buffers_[p] + flow.next() * room_.piece_bytes;
      size_t bytes = 0;
      {
        const CodecTimer timer(&report_.codec_ns);
        bytes = EncodePiece(piece, data_ + piece.begin, scratch_.get(), buffer);
        Measure(piece, data_ + piece.begin, {buffer, bytes});
      }
      Send(piece, buffer, bytes, &flow);
      *budget -= static_cast<int64_t>(piece.plain_bytes());
      any = true;
    });
    return any;
  }

  void Send(const CodedPiece& piece, std::byte* data, size_t bytes, OutFlow* flow) {
    flow->Send(data, bytes, piece.coded());
    report_.plain_bytes += static_cast<int64_t>(piece.plain_bytes());
    report_.coded_bytes += static_cast<int64_t>(bytes + (piece.coded() ? sizeof(uint64_t) : 0));
  }

  void Measure(const CodedPiece& piece, const float* values, std::span<const std::byte> bytes) {
    if (piece.plain()) return;
    if (!measures_) {
      report_.largest_error = std::max(report_.largest_error, piece.bound());
      return;
    }
    const absl::Status decoded = DecodePiece(piece, bytes, scratch_.get());
    TRIREME_CHECK(decoded.ok());
    AddErrors({values, piece.count()}, {scratch_.get(), piece.count()}, &report_);
  }

  bool AllDone() const {
    bool done = own_.AtEnd();
    ForPeers([&](int, size_t p) {
      done = done && to_contribute_[p].AtEnd() && contributions_out_[p].AllGone() &&
             contributions_in_[p].Done() && sums_out_[p].AllGone() && sums_in_[p].Done();
    });
    return done;
  }

  const Group* group_;
  const CodedRoom room_;
  // Left unwritten: pages that no collective touches are never given.
  std::unique_ptr<std::byte[]> staging_;
  std::unique_ptr<float[]> scratch_;
  compress::SegmentAdder adder_;
  std::vector<std::span<const std::byte>> terms_;
  uint32_t channel_ = 0;

  float* data_ = nullptr;
  float* share_ = nullptr;  // the own one, from element share_begin_ on
  int64_t share_begin_ = 0;
  bool adds_ = false;
  bool spreads_ = false;
  bool measures_ = false;
  absl::Status fault_;
  CodingReport report_;
  uint64_t sums_made_ = 0;
  PieceCursor own_;                         // next piece of the own share to sum
  std::vector<PieceCursor> to_contribute_;  // by owner
  std::vector<std::byte*> contribution_buffers_;
  std::byte* sum_buffers_ = nullptr;
  std::byte* own_buffer_ = nullptr;
  std::vector<InFlow> contributions_in_, sums_in_;
  std::vector<OutFlow> contributions_out_, sums_out_;
};

}  // namespace

CodedRoom CodedRoomFor(int ranks, size_t staging_bytes) {
  CodedRoom room;
  room.depth = DepthFor(ranks);
  // A coded piece is two messages.
  room.requests = 8 * room.depth * static_cast<size_t>(ranks - 1);
  for (int64_t values = compress::kMostSegmentValues; values >= kLeastPieceValues; values /= 2) {
    if (BuffersFor(ranks, room.depth) * PieceRoom(values) > staging_bytes) continue;
    room.piece_values = values;
    room.piece_bytes = PieceRoom(values);
    break;
  }
  return room;
}

size_t LeastCodedBytes(int ranks) {
  return BuffersFor(ranks, DepthFor(ranks)) * PieceRoom(kLeastPieceValues);
}

std::unique_ptr<CodedAlgorithm> MakeCoded(const Group* group, size_t staging_bytes) {
  return std::make_unique<Coded>(group, staging_bytes);
}

}  // namespace trireme::comm
