// Coded segments: up to 65,536 f32 values as a small frame whose codes add as integers, exactly and
// without unpacking to floats (docs/formats/codec_stream.md, Coded segments). What an element of a
// sum comes to depends on that element's terms and their order alone: not on its neighbours, not on
// where a message was cut into segments, not on the processor.
//
// Bound: with x_i the n terms of an element and e the absolute bound of one of them,
//   |sum of x_i - decoded sum| <= n e + (n + 1) 2^-24 (sum of |x_i| + n e),
// the second part being the roundings to f32 of the terms and of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compress/codec.h"

namespace trireme::compress {

inline constexpr size_t kMostSegmentValues = 65536;

// No segment of `count` values is longer, whatever they are and however many were added.
size_t MaxSegmentBytes(size_t count);

// What a segment says of itself. Every one of its `terms` keeps the quantiser's absolute bound.
struct SegmentInfo {
  uint32_t terms = 0;
  size_t count = 0;
  Quantiser quantiser;
};

// Checks lengths, numbers and the checksum of the whole segment. DataLoss names what is wrong.
absl::StatusOr<SegmentInfo> ReadSegmentInfo(std::span<const std::byte> segment);

// Codes 1 to 65,536 values with a quantiser whose step is not 0, as one term. `out` has room for
// MaxSegmentBytes. Returns the bytes written. Finite values come back within the bound; NaN and
// infinities as they are; -0 and denormals count as the numbers they are. Never allocates.
size_t EncodeSegment(std::span<const float> values, const Quantiser& quantiser,
                     std::span<std::byte> out, const CodecOptions& options = {});

// Decodes a segment that must have out.size() values and the quantiser's step: else, and for any
// damage, DataLoss, with unspecified values in `out`. Allocates only for an error.
absl::Status DecodeSegment(std::span<const std::byte> segment, const Quantiser& quantiser,
                           std::span<float> out, const CodecOptions& options = {});

// What the segments that are added must be.
struct SegmentSum {
  size_t count = 0;
  Quantiser quantiser;
};

// Adds segments. Not for several threads at once; allocates only when made, and for errors.
class SegmentAdder {
 public:
  explicit SegmentAdder(size_t most_segments, const CodecOptions& options = {});
  ~SegmentAdder();

  // Writes the sum of 1 to `most_segments` segments to `out`, which has room for MaxSegmentBytes
  // and overlaps none of them, and returns its bytes. Where all terms of an element are codes,
  // their sum is a code (or, too large for one, the value it stands for); elsewhere the decoded
  // terms are added in f64 in the order given and rounded to f32 once, infinities as in floats, any
  // NaN as 0x7fc00000. DataLoss for a segment that is damaged or not of `sum`; culprit() is then
  // its place.
  absl::StatusOr<size_t> Add(std::span<const std::span<const std::byte>> segments,
                             const SegmentSum& sum, std::span<std::byte> out);
  size_t culprit() const { return culprit_; }

 private:
  class Work;
  std::unique_ptr<Work> work_;
  size_t culprit_ = 0;
};

}  // namespace trireme::compress
