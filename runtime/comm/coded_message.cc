#include "runtime/comm/coded_message.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/kernels.h"
#include "runtime/base/check.h"
#include "runtime/comm/channels.h"

namespace trireme::comm {
namespace {

constexpr size_t kMessageDepth = 2;
constexpr int64_t kValuesPerAdvance = 1 << 18;
// For values that are all 0, whose relative bounds are 0: any step codes them exactly.
constexpr double kBoundOfZeros = 0x1p-99;

PieceCursor CursorOver(const CodedRun* run, int64_t piece_values) {
  return {{run, 1},
          run->begin,
          run->end,
          std::clamp<int64_t>(piece_values, 1, compress::kMostSegmentValues)};
}

FlowEnd EndOf(const CodedMessageSpec& spec) {
  return {spec.peer, SizeChannelOf(spec.channel), spec.channel};
}

}  // namespace

CodedSend::CodedSend(const Group* group)
    : group_(group),
      buffers_(new std::byte[kMessageDepth * PieceRoom(compress::kMostSegmentValues)]),
      decoded_(new float[compress::kMostSegmentValues]),
      flow_(group, kMessageDepth) {}

void CodedSend::Start(const CodedMessageSpec& spec, std::span<const float> data,
                      const Coding& coding) {
  spec_ = spec;
  data_ = data;
  coding_ = coding;
  measured_ = coding.message_bound.mode == compress::BoundMode::kAbsolute
                  ? static_cast<int64_t>(data.size())
                  : 0;
  sum_of_squares_ = 0;
  smallest_ = std::numeric_limits<double>::infinity();
  largest_ = -smallest_;
  finite_ = 0;
  bound_known_ = false;
  report_ = CodingReport{};
  report_.coded = true;
  flow_.Start(EndOf(spec));
}

void CodedSend::Measure(int64_t* budget) {
  const CodecTimer timer(&report_.codec_ns);
  const auto here = std::min<int64_t>(compress::kMostSegmentValues, std::ssize(data_) - measured_);
  const compress::Moments moments =
      compress::BestKernels().moments_f32(data_.data() + measured_, static_cast<size_t>(here));
  measured_ += here;
  *budget -= here;
  if (moments.finite == 0) return;
  sum_of_squares_ += moments.sum_of_squares;
  smallest_ = std::min(smallest_, moments.smallest);
  largest_ = std::max(largest_, moments.largest);
  finite_ += moments.finite;
}

void CodedSend::SendBound() {
  const compress::Bound& asked = coding_.message_bound;
  double bound = asked.value;
  if (asked.mode != compress::BoundMode::kAbsolute && asked.value > 0) {
    const bool rms = asked.mode == compress::BoundMode::kRms;
    const double scale = finite_ == 0 ? 0
                         : rms        ? std::sqrt(sum_of_squares_ / static_cast<double>(finite_))
                                      : largest_ - smallest_;
    const bool all_zero = finite_ == 0 || (smallest_ == 0 && largest_ == 0);
    bound = all_zero ? kBoundOfZeros : asked.value * scale;
  }
  run_ = {0, std::ssize(data_), bound};
  cursor_ = CursorOver(&run_, spec_.piece_values);
  bound_known_ = true;
  bound_.Post(*group_, Direction::kSend, spec_.peer, SizeChannelOf(spec_.channel), &run_.bound,
              sizeof(run_.bound));
  report_.coded_bytes += sizeof(run_.bound);
}

void CodedSend::SendPiece() {
  std::byte* buffer = buffers_.get() + flow_.next() * PieceRoom(compress::kMostSegmentValues);
  const CodedPiece piece = cursor_.Next();
  const float* values = data_.data() + piece.begin;
  size_t bytes = 0;
  {
    const CodecTimer timer(&report_.codec_ns);
    bytes = EncodePiece(piece, values, nullptr, buffer);
    if (coding_.measure_error && piece.coded()) {
      TRIREME_CHECK(DecodePiece(piece, {buffer, bytes}, decoded_.get()).ok());
      AddErrors({values, piece.count()}, {decoded_.get(), piece.count()}, &report_);
    } else {
      report_.largest_error = std::max(report_.largest_error, piece.quantiser.absolute);
    }
  }
  report_.plain_bytes += static_cast<int64_t>(piece.plain_bytes());
  report_.coded_bytes += static_cast<int64_t>(bytes + (piece.coded() ? sizeof(uint64_t) : 0));
  flow_.Send(buffer, bytes, piece.coded());
}

bool CodedSend::Advance(uint64_t* moved) {
  int64_t budget = kValuesPerAdvance;
  while (measured_ < std::ssize(data_) && budget > 0) Measure(&budget);
  if (measured_ < std::ssize(data_)) {
    ++*moved;
    return false;
  }
  if (!bound_known_) SendBound();
  flow_.Advance(moved);
  while (!cursor_.AtEnd() && flow_.HasRoom() && budget > 0) {
    SendPiece();
    budget -= spec_.piece_values;
    ++*moved;
  }
  return bound_.Finished(*group_) && AllPosted() && flow_.AllGone();
}

CodedRecv::CodedRecv(const Group* group)
    : group_(group),
      buffers_(new std::byte[kMessageDepth * PieceRoom(compress::kMostSegmentValues)]),
      flow_(group, kMessageDepth, buffers_.get(), PieceRoom(compress::kMostSegmentValues)) {}

void CodedRecv::Start(const CodedMessageSpec& spec, double bound, std::span<float> data) {
  data_ = data;
  peer_ = spec.peer;
  run_ = {0, std::ssize(data), bound};
  fault_ = absl::OkStatus();
  report_ = CodingReport{};
  report_.coded = true;
  flow_.Start(EndOf(spec), CursorOver(&run_, spec.piece_values));
}

bool CodedRecv::Advance(uint64_t* moved) {
  int64_t budget = kValuesPerAdvance;
  while (fault_.ok()) {
    fault_ = flow_.Advance(moved);
    if (!fault_.ok() || !flow_.HasPiece() || budget <= 0) break;
    const CodecTimer timer(&report_.codec_ns);
    const CodedPiece& piece = flow_.piece();
    fault_ =
        FromPeer(DecodePiece(piece, flow_.bytes(), data_.data() + piece.begin), *group_, peer_);
    budget -= static_cast<int64_t>(piece.count());
    flow_.Take();
  }
  return fault_.ok() && flow_.Done();
}

CodedMessages::CodedMessages(const Group* group, size_t each) {
  for (size_t i = 0; i < each; ++i) {
    sends.push_back(std::make_unique<CodedSend>(group));
    recvs.push_back(std::make_unique<CodedRecv>(group));
    idle_sends.push_back(sends.back().get());
    idle_recvs.push_back(recvs.back().get());
  }
}

size_t CodedMessages::requests(size_t each) { return each * (2 * kMessageDepth * 2 + 1); }

}  // namespace trireme::comm
