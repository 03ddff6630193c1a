// Coded segments: the bound of a sum, independence of cutting, neighbours and kernels, and what is
// refused.
#include "compress/stream_sum.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "compress/kernels.h"
#include "runtime/base/text.h"
#include "runtime/checksum/crc32c.h"
#include "tests/compress/sample_values.h"

namespace trireme::compress {
namespace {

using Segment = std::vector<std::byte>;
using Catch::Contains;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Quantiser QuantiserOf(double bound) { return *ResolveAbsolute(ElementType::kF32, bound); }

Segment Encoded(std::span<const float> values, double bound, const CodecOptions& options = {}) {
  Segment segment(MaxSegmentBytes(values.size()));
  segment.resize(EncodeSegment(values, QuantiserOf(bound), segment, options));
  return segment;
}

std::vector<float> Decoded(const Segment& segment, size_t count, double bound) {
  std::vector<float> values(count, 77);
  REQUIRE(DecodeSegment(segment, QuantiserOf(bound), values).ToString() == "OK");
  return values;
}

absl::StatusOr<Segment> TrySum(const std::vector<Segment>& segments, size_t count, double bound,
                               const CodecOptions& options = {}, size_t* culprit = nullptr) {
  const std::vector<std::span<const std::byte>> spans(segments.begin(), segments.end());
  SegmentAdder adder(segments.size(), options);
  Segment sum(MaxSegmentBytes(count));
  const auto bytes = adder.Add(spans, {count, QuantiserOf(bound)}, sum);
  if (culprit != nullptr) *culprit = adder.culprit();
  if (!bytes.ok()) return bytes.status();
  sum.resize(*bytes);
  return sum;
}

Segment Sum(const std::vector<Segment>& segments, size_t count, double bound,
            const CodecOptions& options = {}) {
  const auto sum = TrySum(segments, count, bound, options);
  REQUIRE(sum.status().ToString() == "OK");
  return *sum;
}

std::vector<float> Floats(Kind kind, size_t count, double bound, uint64_t seed) {
  const auto bits = MakeValues<F32>(kind, count, bound, seed);
  std::vector<float> values(count);
  std::memcpy(values.data(), bits.data(), count * sizeof(float));
  return values;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_CASE("a segment keeps the bound and all that is not finite") {
  for (const Kind kind : kKinds) {
    for (const double bound : {1e-6, 1e-3, 0.1}) {
      for (const size_t count : {1, 255, 256, 257, 5000, 65536}) {
        const std::vector<float> values = Floats(kind, count, bound, count);
        const Segment segment = Encoded(values, bound);
        REQUIRE(segment.size() <= MaxSegmentBytes(count));
        const std::vector<float> back = Decoded(segment, count, bound);
        size_t wrong = 0;
        for (size_t i = 0; i < count; ++i) {
          const bool same = std::memcmp(&values[i], &back[i], sizeof(float)) == 0;
          wrong += !same && !(std::fabs(static_cast<double>(values[i]) - back[i]) <= bound);
        }
        CHECK(wrong == 0);
        const auto info = ReadSegmentInfo(segment);
        REQUIRE(info.ok());
        CHECK((info->terms == 1 && info->count == count));
      }
    }
  }
}

// Against a sum in long double, without any of the codec's arithmetic.
void CheckBound(const std::vector<std::vector<float>>& terms, std::span<const float> sum,
                double bound) {
  const auto n = static_cast<long double>(terms.size());
  size_t wrong = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    long double exact = 0, magnitude = n * bound;
    bool nan = false, up = false, down = false;
    for (const std::vector<float>& term : terms) {
      nan |= std::isnan(term[i]);
      up |= term[i] == kInfinity;
      down |= term[i] == -kInfinity;
      exact += term[i];
      magnitude += std::fabs(static_cast<long double>(term[i]));
    }
    if (nan || (up && down)) {
      wrong += !std::isnan(sum[i]);
    } else if (up || down || magnitude > std::numeric_limits<float>::max()) {
      wrong += (up || down) && sum[i] != (up ? kInfinity : -kInfinity);
    } else {
      wrong += !(std::fabs(exact - sum[i]) <= n * bound + (n + 1) * 0x1p-24L * magnitude);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("the error of a sum of n terms is within n bounds and the stated roundings") {
  constexpr size_t kCount = 20'000;
  for (const Kind kind : kKinds) {
    for (const size_t n : {1, 2, 3, 7, 64}) {
      const double bound = n % 2 == 0 ? 1e-3 : 0.03;
      std::vector<std::vector<float>> terms;
      std::vector<Segment> segments;
      for (size_t k = 0; k < n; ++k) {
        terms.push_back(Floats(kind, kCount, bound, 100 * n + k));
        segments.push_back(Encoded(terms.back(), bound));
      }
      const Segment sum = Sum(segments, kCount, bound);
      INFO("kind " << static_cast<int>(kind) << ", " << n << " terms");
      CHECK(ReadSegmentInfo(sum)->terms == n);
      CHECK(sum.size() <= MaxSegmentBytes(kCount));
      CheckBound(terms, Decoded(sum, kCount, bound), bound);
    }
  }
}

TEST_CASE("all that can go wrong at a bin edge adds up: the bound of the sum is reached and kept") {
  constexpr size_t kTerms = 8, kCount = 4096;
  constexpr double kBound = 0.5;
  const auto step = static_cast<float>(QuantiserOf(kBound).step);
  std::vector<std::vector<float>> terms(kTerms, std::vector<float>(kCount));
  std::vector<Segment> segments;
  for (std::vector<float>& term : terms) {
    for (size_t i = 0; i < kCount; ++i) {
      term[i] = (static_cast<float>(i) + 0.4999F) * step;
    }
    segments.push_back(Encoded(term, kBound));
  }
  const auto sum = Decoded(Sum(segments, kCount, kBound), kCount, kBound);
  CheckBound(terms, sum, kBound);
  const double worst = std::fabs(kTerms * static_cast<double>(terms[0][9]) - sum[9]);
  CHECK(worst > 0.99 * kTerms * kBound);
}

// Terms whose blocks take every way there is: fast, by lane, with exceptions, verbatim.
std::vector<std::vector<float>> MixedTerms(size_t terms, size_t count, double bound) {
  std::vector<std::vector<float>> all;
  for (size_t k = 0; k < terms; ++k) {
    std::vector<float> values;
    for (size_t part = 0; values.size() < count; ++part) {
      const Kind kind = kKinds[(part * 5 + k * (part % 3)) % std::size(kKinds)];
      const auto some = Floats(kind, 100 + part * 37 % 900, bound, part * 64 + k);
      values.insert(values.end(), some.begin(), some.end());
    }
    values.resize(count);
    all.push_back(std::move(values));
  }
  return all;
}

std::vector<float> SumInSegments(const std::vector<std::vector<float>>& terms, size_t length,
                                 double bound) {
  std::vector<float> sum;
  const size_t count = terms[0].size();
  for (size_t first = 0; first < count; first += length) {
    const size_t here = std::min(length, count - first);
    std::vector<Segment> segments;
    for (const std::vector<float>& term : terms) {
      segments.push_back(Encoded(std::span(term).subspan(first, here), bound));
    }
    const auto part = Decoded(Sum(segments, here, bound), here, bound);
    sum.insert(sum.end(), part.begin(), part.end());
  }
  return sum;
}

TEST_CASE("the bits of a sum do not depend on the cutting, down to segments of one value") {
  constexpr double kBound = 0.01;
  const auto terms = MixedTerms(5, 60'000, kBound);
  const std::vector<float> whole = SumInSegments(terms, 60'000, kBound);
  CheckBound(terms, whole, kBound);
  for (const size_t length : {32'768, 4096, 256, 300, 77, 1}) {
    INFO("segments of " << length);
    CHECK(SameBits(SumInSegments(terms, length, kBound), whole));
  }
}

TEST_CASE("coded terms give the same bits in every order and as sums of sums") {
  constexpr double kBound = 0.01;
  constexpr size_t kCount = 3000;
  std::vector<Segment> segments;
  for (uint64_t k = 0; k < 6; ++k) {
    segments.push_back(Encoded(Floats(Kind::kGauss, kCount, kBound, k), kBound));
  }
  const Segment sum = Sum(segments, kCount, kBound);
  const Segment first = Sum({segments[0], segments[4], segments[2]}, kCount, kBound);
  const Segment second = Sum({segments[5], segments[3], segments[1]}, kCount, kBound);
  CHECK(Sum({second, first}, kCount, kBound) == sum);
  std::reverse(segments.begin(), segments.end());
  CHECK(Sum(segments, kCount, kBound) == sum);
}

TEST_CASE("codes whose sum leaves 30 bits become the value they stand for") {
  constexpr double kBound = 0.5;
  constexpr size_t kCount = 256;
  const std::vector<float> term(kCount, 4e6F);
  std::vector<Segment> segments(300, Encoded(term, kBound));
  const auto sum = Decoded(Sum(segments, kCount, kBound), kCount, kBound);
  for (const float value : sum) REQUIRE(std::fabs(value - 1.2e9) <= 300 * kBound + 128);
  // The same through sums of sums, whose codes add up to more than an int32.
  const Segment part = Sum(std::vector<Segment>(100, segments[0]), kCount, kBound);
  const std::vector<Segment> parts(30, part);
  const auto larger = Decoded(Sum(parts, kCount, kBound), kCount, kBound);
  for (const float value : larger) REQUIRE(std::fabs(value - 1.2e10) <= 3000 * kBound + 1024);
}

TEST_CASE("all kernels give the same bytes of segments and sums") {
  constexpr double kBound = 0.01;
  const auto terms = MixedTerms(3, 30'000, kBound);
  std::vector<Segment> reference;
  Segment reference_sum;
  for (const Kernels* kernels : AllKernels()) {
    CodecOptions options;
    options.kernels = kernels;
    std::vector<Segment> segments;
    for (const auto& term : terms) segments.push_back(Encoded(term, kBound, options));
    const Segment sum = Sum(segments, terms[0].size(), kBound, options);
    if (reference.empty()) {
      reference = segments;
      reference_sum = sum;
    }
    INFO(kernels->name);
    CHECK(segments == reference);
    CHECK(sum == reference_sum);
  }
}

TEST_CASE("zeros cost a header") {
  const std::vector<float> zeros(65536, 0.0F);
  const Segment segment = Encoded(zeros, 0.1);
  CHECK(segment.size() == 56);
  CHECK(Sum({segment, segment}, zeros.size(), 0.1).size() == 56);
}

TEST_CASE("a damaged or foreign segment is refused and named") {
  constexpr double kBound = 0.01;
  constexpr size_t kCount = 2000;
  std::vector<Segment> good;
  const auto terms = MixedTerms(3, kCount, kBound);
  for (const auto& term : terms) good.push_back(Encoded(term, kBound));
  const auto fault = [&](size_t place, const Segment& bad) {
    std::vector<Segment> segments = good;
    segments[place] = bad;
    size_t culprit = 99;
    const auto sum = TrySum(segments, kCount, kBound, {}, &culprit);
    REQUIRE(sum.status().code() == absl::StatusCode::kDataLoss);
    CHECK(culprit == place);
    return std::string(sum.status().message());
  };
  Segment cut = good[1];
  cut.resize(cut.size() - 1);
  CHECK_THAT(fault(1, cut), Contains("cut off"));
  CHECK_THAT(fault(2, Segment(40)), Contains("fewer than its header"));
  Segment flipped = good[0];
  flipped[300] ^= std::byte{4};
  CHECK_THAT(fault(0, flipped), Contains("checksum"));
  CHECK_THAT(fault(1, Encoded(terms[1], 0.02)), Contains("expected 2000 of step"));
  CHECK_THAT(fault(1, Encoded(std::span(terms[1]).first(1999), kBound)), Contains("1999 values"));
  std::vector<float> out(kCount);
  CHECK(DecodeSegment(good[0], QuantiserOf(0.02), out).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("bytes that lie behind a right checksum never lead outside") {
  constexpr double kBound = 0.01;
  constexpr size_t kCount = 1500;
  const auto terms = MixedTerms(2, kCount, kBound);
  const std::vector<Segment> good = {Encoded(terms[0], kBound), Encoded(terms[1], kBound)};
  std::mt19937 random(5);
  std::vector<float> out(kCount);
  size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    Segment bad = good[1];
    for (uint32_t k = 0; k <= random() % 3; ++k) {
      // The piece, mostly where its width bytes are.
      const size_t at = 48 + (random() % 2 == 0 ? random() % 16 : random() % (bad.size() - 48));
      bad[at] = static_cast<std::byte>(random());
    }
    const uint32_t crc =
        checksum::Crc32c(std::span(bad).subspan(48), checksum::Crc32c(std::span(bad).first(44)));
    std::memcpy(bad.data() + 44, &crc, 4);
    const auto sum = TrySum({good[0], bad}, kCount, kBound);
    refused += !sum.ok();
    (void)DecodeSegment(bad, QuantiserOf(kBound), out);
    if (sum.ok()) REQUIRE(DecodeSegment(*sum, QuantiserOf(kBound), out).ok());
  }
  CHECK(refused > 1000);
}

}  // namespace
}  // namespace trireme::compress
