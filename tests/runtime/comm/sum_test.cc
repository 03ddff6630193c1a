// The additions themselves: bf16 in f32, rounded once, in every length and for every place of the
// result.
#include "runtime/comm/sum.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/tensor/bf16.h"

namespace trireme::comm {
namespace {

using tensor::BFloat16;

// Numbers of all sizes, with NaN, infinities and zeros among them.
std::vector<BFloat16> SomeBf16(size_t count, uint64_t seed) {
  std::vector<BFloat16> values(count);
  uint64_t state = 88172645463325252ULL + seed * 7919;
  for (BFloat16& value : values) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    // Exponents near each other, so that sums round.
    value.bits = static_cast<uint16_t>((state & 0x81FF) + 0x3E00);
    if (state >> 56 == 1) value.bits = static_cast<uint16_t>(state >> 20);  // anything
  }
  return values;
}

bool Same(BFloat16 got, BFloat16 expected) {
  const bool both_nan =
      std::isnan(static_cast<float>(got)) && std::isnan(static_cast<float>(expected));
  return both_nan || got == expected;
}

float Combined(ReduceOp op, float a, float b) {
  if (op == ReduceOp::kSum) return a + b;
  return std::isnan(a) || a > b ? a : b;
}

TEST_CASE(
    "bf16 is combined in f32 and rounded once, whatever the length, the terms and the target") {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    for (const size_t ranks : {2, 3, 5}) {
      for (const size_t count : {0, 1, 3, 15, 17, 64, 2047, 2049, 5000}) {
        for (size_t target = 0; target <= ranks; ++target) {  // the last: a place of its own
          std::vector<std::vector<BFloat16>> data;
          for (size_t r = 0; r <= ranks; ++r) data.push_back(SomeBf16(count, r));
          std::vector<BFloat16> expected, copy(count);
          for (size_t i = 0; i < count; ++i) {
            float sum = static_cast<float>(data[0][i]);
            for (size_t r = 1; r < ranks; ++r)
              sum = Combined(op, sum, static_cast<float>(data[r][i]));
            expected.emplace_back(sum);
          }
          std::vector<const std::byte*> terms;
          for (size_t r = 0; r < ranks; ++r)
            terms.push_back(reinterpret_cast<const std::byte*>(data[r].data()));
          std::byte* const targets[] = {reinterpret_cast<std::byte*>(data[target].data()),
                                        reinterpret_cast<std::byte*>(copy.data())};
          ApplyAll({terms, targets, static_cast<int64_t>(count), tensor::DType::kBf16, op});
          INFO(ranks << " terms of " << count << " elements to " << target);
          CHECK(std::equal(expected.begin(), expected.end(), data[target].begin(), Same));
          CHECK(std::equal(expected.begin(), expected.end(), copy.begin(), Same));
        }
      }
    }
  }
}

// Against BFloat16's constructor: every upper half with the lower halves about the middle, where a
// rounding is decided, ties among them; in lengths that leave a rest beside whole vectors.
TEST_CASE("f32 to bf16 and back is BFloat16's rounding, for every upper half") {
  std::vector<float> values;
  for (uint32_t upper = 0; upper <= 0xFFFF; ++upper) {
    for (const uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
  }
  for (const size_t rest : {0, 1, 7, 13}) {
    const std::span<const float> from = std::span(values).subspan(rest);
    std::vector<BFloat16> rounded(from.size());
    RoundToBf16(from, reinterpret_cast<std::byte*>(rounded.data()));
    std::vector<float> widened(from.size());
    WidenBf16(reinterpret_cast<const std::byte*>(rounded.data()), widened);
    size_t wrong = 0;
    for (size_t i = 0; i < from.size(); ++i) {
      const BFloat16 expected(from[i]);
      const bool same = rounded[i] == expected &&
                        std::bit_cast<uint32_t>(widened[i]) == uint32_t{expected.bits} << 16;
      wrong += same ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

// Where `to` is another place, `a` or `b`: each has a loop of its own.
template <typename T>
void CheckMaximumOfNan(tensor::DType dtype) {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> left{kNan, 1, kNan, 3, -2}, right{1, kNan, kNan, 2, 5};
  for (const int place : {0, 1, 2}) {
    INFO("place " << place);
    std::vector<T> a = left, b = right, other(left.size());
    std::vector<T>& to = place == 0 ? other : place == 1 ? a : b;
    Apply({to.data(), a.data(), b.data(), std::ssize(left), dtype, ReduceOp::kMax});
    for (const size_t i : {0, 1, 2}) CHECK(std::isnan(to[i]));
    CHECK((to[3] == 3 && to[4] == 5));
  }
}

TEST_CASE("a maximum with a NaN on either side is NaN") {
  CheckMaximumOfNan<float>(tensor::DType::kF32);
  CheckMaximumOfNan<double>(tensor::DType::kF64);
}

TEST_CASE("all terms at once are added in their order, to any of them and to others") {
  for (const size_t ranks : {2, 3, 4}) {
    for (const size_t count : {1, 7, 2048, 2049, 5000}) {
      std::vector<std::vector<float>> data(ranks, std::vector<float>(count));
      std::vector<float> expected(count);
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t i = 0; i < count; ++i) {
          data[r][i] = 1.0F / static_cast<float>(3 + (i * 7919 + r * 104729) % 1009);
          expected[i] = r == 0 ? data[r][i] : expected[i] + data[r][i];
        }
      }
      std::vector<const std::byte*> terms;
      std::vector<std::byte*> targets;
      for (std::vector<float>& one : data) {
        terms.push_back(reinterpret_cast<const std::byte*>(one.data()));
        targets.push_back(reinterpret_cast<std::byte*>(one.data()));
      }
      ApplyAll({terms, targets, static_cast<int64_t>(count), tensor::DType::kF32, ReduceOp::kSum});
      INFO(ranks << " terms of " << count << " elements");
      for (const std::vector<float>& one : data) CHECK(one == expected);
    }
  }
}

}  // namespace
}  // namespace trireme::comm
