// Relative bounds over messages of several pieces, against a mean square and a range that the test
// takes itself, over all finite values of the message: docs/formats/codec_stream.md.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "compress/codec.h"
#include "compress/element.h"
#include "compress/kernels.h"
#include "tests/compress/sample_values.h"

namespace trireme::compress {
namespace {

constexpr size_t kPiece = 65536;  // the format's

// Each piece has its own scale and its own offset, the greatest and the least value of all lie in
// different pieces, and the last piece is short. A few values are not finite.
template <typename E>
BitsVector<E> UnevenPieces(size_t count) {
  std::mt19937_64 random(41);
  std::normal_distribution<double> normal;
  BitsVector<E> values(count);
  const double scales[] = {0.01, 3, 0.2, 40, 0.5};
  const double offsets[] = {0, 90, 2, -130, 7};
  for (size_t i = 0; i < count; ++i) {
    const size_t piece = i / kPiece % std::size(scales);
    values[i] = E::Round(offsets[piece] + scales[piece] * normal(random));
    if (i % 5003 == 77) values[i] = static_cast<typename E::Bits>(E::kInfinity | (i % 2));
    if (i % 7001 == 78) values[i] = static_cast<typename E::Bits>(E::kInfinity | E::kSign);
  }
  return values;
}

struct Scales {
  long double rms = 0, range = 0;
};

template <typename E>
Scales ScalesOf(std::span<const typename E::Bits> values) {
  long double squares = 0, finite = 0;
  long double least = std::numeric_limits<long double>::infinity(), greatest = -least;
  for (const typename E::Bits bits : values) {
    const long double value = E::Value(bits);
    if (!std::isfinite(value)) continue;
    squares += value * value;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
    finite += 1;
  }
  return {std::sqrt(squares / finite), greatest - least};
}

// The codec sums n squares in f64 in runs of any shape, so its mean errs by at most n 2^-53 of it
// (half of that after the root): below 2^-35 for 2^18 values. What is left is one rounding down of
// the bound: to f32 but for f64 values, so 2^-23.
template <typename E>
void CheckBoundsOf(size_t count) {
  const auto values = UnevenPieces<E>(count);
  const Scales scales = ScalesOf<E>(values);
  constexpr double kRelative = 0x1p-3;
  const double rounding = E::kType == ElementType::kF64 ? 0x1p-35 : 0x1p-23 + 0x1p-35;
  for (const BoundMode mode : {BoundMode::kRms, BoundMode::kRange}) {
    const auto scale = static_cast<double>(mode == BoundMode::kRms ? scales.rms : scales.range);
    const double bound = kRelative * scale;
    for (const int threads : {1, 3}) {
      INFO(NameOf(E::kType) << " " << NameOf(mode) << ", " << count << " values, " << threads
                            << " threads");
      const auto stream = Compress(ValuesIn<E>(values), {mode, kRelative}, {.threads = threads});
      REQUIRE(stream.ok());
      const auto info = ReadInfo(*stream);
      REQUIRE(info.ok());
      CHECK(info->pieces == (count + kPiece - 1) / kPiece);
      CHECK(info->quantiser.absolute <= bound * (1 + 0x1p-35));
      CHECK(info->quantiser.absolute >= bound * (1 - rounding));
      BitsVector<E> back(count, 1);
      REQUIRE(Decompress(*stream, ValuesIn<E>(&back), {}).ok());
      CHECK(Violations<E>(values, back, bound * (1 + 0x1p-35)) == 0);
    }
  }
}

TEST_CASE("a relative bound is that of the whole message, whatever its pieces hold") {
  for (const size_t count : {kPiece - 1, kPiece + 1, 3 * kPiece + 17, 5 * kPiece - 300}) {
    CheckBoundsOf<F32>(count);
    CheckBoundsOf<F64>(count);
    CheckBoundsOf<BF16>(count);
    CheckBoundsOf<F16>(count);
  }
}

TEST_CASE("each kernel finds the moments of a piece that a sum of each value in turn finds") {
  for (const size_t count : {size_t{1}, size_t{7}, size_t{255}, size_t{257}, kPiece - 1, kPiece}) {
    for (size_t shift = 0; shift < 3; ++shift) {
      const auto bits = UnevenPieces<F32>(3 * kPiece);
      const size_t first = shift * kPiece + shift;
      const size_t many = std::min(count, bits.size() - first);
      const std::span<const uint32_t> part(bits.data() + first, many);
      const Scales expected = ScalesOf<F32>(part);
      for (const Kernels* kernels : AllKernels()) {
        INFO(kernels->name << ", " << many << " values from " << first);
        const auto moments =
            kernels->moments_f32(reinterpret_cast<const float*>(part.data()), many);
        const double rms = std::sqrt(moments.sum_of_squares / static_cast<double>(moments.finite));
        CHECK(rms == Approx(static_cast<double>(expected.rms)).epsilon(0x1p-35).margin(0));
        CHECK(moments.largest - moments.smallest == static_cast<double>(expected.range));
      }
    }
  }
}

}  // namespace
}  // namespace trireme::compress
