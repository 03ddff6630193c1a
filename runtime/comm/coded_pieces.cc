#include "runtime/comm/coded_pieces.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "runtime/base/text.h"
#include "runtime/comm/scale_lines.h"
#include "runtime/comm/sum.h"

namespace trireme::comm {

CodedPiece PieceCursor::Next() {
  while (run_ < runs_.size() && runs_[run_].end <= at_) ++run_;
  CodedPiece piece;
  piece.begin = at_;
  // Plain runs and the gaps beside them are one.
  int64_t border = end_;
  for (size_t run = run_; run < runs_.size(); ++run) {
    if (runs_[run].begin == runs_[run].end) continue;
    const compress::Quantiser quantiser = QuantiserFor(runs_[run].bound);
    const bool bf16 = runs_[run].format == RunFormat::kBf16;
    if (quantiser.step == 0 && !bf16) continue;
    if (runs_[run].begin > at_) {
      border = std::min(border, runs_[run].begin);
    } else {
      border = std::min(border, runs_[run].end);
      piece.quantiser = quantiser;
      piece.lines = runs_[run].lines;
      piece.bf16 = bf16;
    }
    break;
  }
  piece.end = std::min(border, at_ + piece_values_);
  at_ = piece.end;
  return piece;
}

namespace {

absl::Status CheckLines(const CodedRun& run, size_t index) {
  int64_t last = 0;
  for (size_t line = 0; line < run.lines.size(); ++line) {
    const ScaleLine& one = run.lines[line];
    int exponent = 0;
    const bool power =
        one.row > 0 && std::isfinite(one.row) && std::frexp(one.row, &exponent) == 0.5F;
    const bool ascends = line == 0 ? one.begin <= run.begin : one.begin > last;
    last = one.begin;
    if (ascends && power && exponent > -64 && exponent <= 64) continue;
    return absl::InvalidArgumentError(
        base::Text("coded run ", index, ": line ", line, " at ", one.begin, " of scale ", one.row,
                   "; expected ascending lines from the run's begin on, with powers of two ",
                   "between 2^-64 and 2^63"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRuns(std::span<const CodedRun> runs, int64_t count) {
  int64_t before = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const CodedRun& run = runs[i];
    if (run.begin < before || run.end < run.begin || run.end > count) {
      return absl::InvalidArgumentError(base::Text("coded run ", i, " is [", run.begin, ", ",
                                                   run.end, "); expected inside [", before, ", ",
                                                   count, "): runs ascend and do not overlap"));
    }
    if (!std::isfinite(run.bound) || run.bound < 0) {
      return absl::InvalidArgumentError(
          base::Text("coded run ", i, ": bound ", run.bound, " is not a finite number from 0 up"));
    }
    if (run.format == RunFormat::kBf16 && (run.bound != 0 || !run.lines.empty())) {
      return absl::InvalidArgumentError(
          base::Text("coded run ", i, " is to travel as bf16, which keeps no bound"));
    }
    if (const absl::Status lines = CheckLines(run, i); !lines.ok()) return lines;
    before = run.end;
  }
  return absl::OkStatus();
}

compress::Quantiser QuantiserFor(double bound) {
  const auto quantiser = compress::ResolveAbsolute(compress::ElementType::kF32, bound);
  return quantiser.ok() ? *quantiser : compress::Quantiser{};
}

size_t PieceRoom(int64_t values) {
  constexpr size_t kLineBytes = 64;
  const size_t bytes = compress::MaxSegmentBytes(static_cast<size_t>(values));
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

double CodedPiece::bound() const {
  return lines.empty() ? quantiser.absolute : quantiser.absolute * LargestScale(lines, begin, end);
}

size_t EncodePiece(const CodedPiece& piece, const float* data, float* scratch, std::byte* out) {
  if (piece.bf16) {
    RoundToBf16({data, piece.count()}, out);
    return piece.known_bytes();
  }
  if (!piece.coded()) {
    std::memcpy(out, data, piece.plain_bytes());
    return piece.plain_bytes();
  }
  if (!piece.lines.empty()) {
    ApplyScales(piece.lines, piece.begin, Scaling::kDivide, {data, piece.count()}, scratch);
    data = scratch;
  }
  return compress::EncodeSegment({data, piece.count()}, piece.quantiser,
                                 {out, compress::MaxSegmentBytes(piece.count())});
}

absl::Status DecodePiece(const CodedPiece& piece, std::span<const std::byte> bytes, float* out) {
  if (piece.bf16) {
    WidenBf16(bytes.data(), {out, piece.count()});
    return absl::OkStatus();
  }
  if (!piece.coded()) {
    std::memcpy(out, bytes.data(), piece.plain_bytes());
    return absl::OkStatus();
  }
  const std::span<float> values(out, piece.count());
  absl::Status decoded = compress::DecodeSegment(bytes, piece.quantiser, values);
  if (decoded.ok() && !piece.lines.empty()) {
    ApplyScales(piece.lines, piece.begin, Scaling::kMultiply, values, out);
  }
  return decoded;
}

void AddErrors(std::span<const float> x, std::span<const float> y, CodingReport* report) {
  double largest = 0, errors = 0, values = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) continue;
    const double value = x[i], error = value - static_cast<double>(y[i]);
    largest = std::max(largest, std::fabs(error));
    errors += error * error;
    values += value * value;
  }
  report->largest_error = std::max(report->largest_error, largest);
  report->error_squares += errors;
  report->value_squares += values;
}

int64_t CodecTimer::NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace trireme::comm
