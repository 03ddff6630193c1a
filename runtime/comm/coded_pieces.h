// The pieces in which a coded collective or message travels: a range of elements cut at the borders
// of its runs and into at most so many values; and the codec's work on one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/stream_sum.h"
#include "runtime/comm/coding.h"

namespace trireme::comm {

// Values [begin, end) in one message: coded, as bf16, or (a quantiser of step 0) as plain floats.
struct CodedPiece {
  int64_t begin = 0;
  int64_t end = 0;
  compress::Quantiser quantiser;
  std::span<const ScaleLine> lines;  // empty: every scale is 1
  bool bf16 = false;

  size_t count() const { return static_cast<size_t>(end - begin); }
  size_t plain_bytes() const { return count() * sizeof(float); }
  bool coded() const { return quantiser.step > 0; }
  bool plain() const { return !coded() && !bf16; }
  // Of a piece that is not coded: both sides know them.
  size_t known_bytes() const { return count() * (bf16 ? sizeof(uint16_t) : sizeof(float)); }
  // The largest bound of any of its values; 0 where it is not coded.
  double bound() const;
};

// Walks over the pieces of a range. Trivially copyable; never allocates.
class PieceCursor {
 public:
  PieceCursor() = default;
  PieceCursor(std::span<const CodedRun> runs, int64_t begin, int64_t end, int64_t piece_values)
      : runs_(runs), at_(begin), end_(end), piece_values_(piece_values) {}

  bool AtEnd() const { return at_ >= end_; }
  CodedPiece Next();

 private:
  std::span<const CodedRun> runs_;
  size_t run_ = 0;
  int64_t at_ = 0;
  int64_t end_ = 0;
  int64_t piece_values_ = 1;
};

// InvalidArgument where runs are not ascending inside [0, count), a bound is no finite number, or
// bf16 has one.
absl::Status CheckRuns(std::span<const CodedRun> runs, int64_t count);
// The quantiser of a checked bound; step 0 where it is too small.
compress::Quantiser QuantiserFor(double bound);

// Most bytes of a piece of `values` values, coded or plain, rounded up to cache lines.
size_t PieceRoom(int64_t values);
// Writes the values of `data` (all of the piece) to `out` as they travel; returns the bytes.
// `scratch` has room for the piece's values where it has lines.
size_t EncodePiece(const CodedPiece& piece, const float* data, float* scratch, std::byte* out);
// The values of a piece that came; DataLoss if it is damaged.
absl::Status DecodePiece(const CodedPiece& piece, std::span<const std::byte> bytes, float* out);
// Adds to `report` how far the decoded y are from the finite ones of x.
void AddErrors(std::span<const float> x, std::span<const float> y, CodingReport* report);

// Adds up the time between its making and its end.
class CodecTimer {
 public:
  explicit CodecTimer(int64_t* total_ns) : total_ns_(total_ns), start_ns_(NowNs()) {}
  ~CodecTimer() { *total_ns_ += NowNs() - start_ns_; }
  CodecTimer(const CodecTimer&) = delete;
  CodecTimer& operator=(const CodecTimer&) = delete;
  static int64_t NowNs();

 private:
  int64_t* total_ns_;
  int64_t start_ns_;
};

}  // namespace trireme::comm
