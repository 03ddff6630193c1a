// Values that are hard on a codec, and what must come back of them.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "compress/codec.h"
#include "compress/element.h"

namespace trireme::compress {

template <typename E>
using BitsVector = std::vector<typename E::Bits>;

template <typename E>
Values ValuesIn(const BitsVector<E>& values) {
  return {E::kType, values.data(), values.size()};
}
template <typename E>
MutableValues ValuesIn(BitsVector<E>* values) {
  return {E::kType, values->data(), values->size()};
}

// How many values did not come back as docs/formats/codec_stream.md promises. Says it without any
// of the codec's own arithmetic.
template <typename E>
size_t Violations(std::span<const typename E::Bits> before, std::span<const typename E::Bits> after,
                  double bound) {
  if (before.size() != after.size()) return SIZE_MAX;
  size_t violations = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    const auto magnitude = static_cast<typename E::Bits>(before[i] & ~E::kSign);
    const bool must_be_kept = magnitude >= E::kInfinity || magnitude < E::kSmallestNormal;
    const bool plus_zero = before[i] == 0;
    const double error = std::fabs(E::Value(before[i]) - E::Value(after[i]));
    if ((must_be_kept && !plus_zero) || !(error <= bound)) ++violations;
  }
  return violations;
}

enum class Kind { kRandomBits, kSpecials, kBinEdges, kGauss, kSmooth, kOffset, kSparse };
inline constexpr Kind kKinds[] = {Kind::kRandomBits, Kind::kSpecials, Kind::kBinEdges, Kind::kGauss,
                                  Kind::kSmooth,     Kind::kOffset,   Kind::kSparse};

// `bound` places the values at bin edges.
template <typename E>
BitsVector<E> MakeValues(Kind kind, size_t count, double bound, uint64_t seed) {
  using Bits = typename E::Bits;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const double scale = kind == Kind::kGauss ? std::exp2(static_cast<double>(random() % 16)) : 1;
  BitsVector<E> values(count);
  for (size_t i = 0; i < count; ++i) {
    switch (kind) {
      case Kind::kRandomBits:
        values[i] = static_cast<Bits>(random());
        break;
      case Kind::kSpecials: {
        const Bits specials[] = {
            0,
            E::kSign,
            E::kInfinity,
            static_cast<Bits>(E::kInfinity | E::kSign),
            static_cast<Bits>(E::kInfinity + 1 + random() % 100),               // NaN
            static_cast<Bits>((E::kInfinity + 1 + random() % 100) | E::kSign),  // NaN
            static_cast<Bits>(1 + random() % (E::kSmallestNormal - 1)),         // denormal
            static_cast<Bits>((E::kSmallestNormal - 1 - random() % 3) | E::kSign),
            static_cast<Bits>(E::kSmallestNormal + random() % 3),
            static_cast<Bits>(E::kInfinity - 1 - random() % 3),  // largest
            E::Round(normal(random)),
            E::Round(normal(random))};
        values[i] = specials[random() % std::size(specials)];
        break;
      }
      case Kind::kBinEdges: {
        const double at = std::floor(normal(random) * 1000) + 0.5;
        values[i] = static_cast<Bits>(E::Round(at * bound * (random() % 2 == 0 ? 2 : 2 - 0x1p-9)) +
                                      random() % 5 - 2);
        break;
      }
      case Kind::kGauss:
        values[i] = E::Round(normal(random) * scale * bound);
        break;
      case Kind::kSmooth:
        values[i] = E::Round(std::sin(static_cast<double>(i) * 0.001) +
                             std::sin(static_cast<double>(i) * 0.00013));
        break;
      case Kind::kOffset:
        values[i] = E::Round(1000 + normal(random));
        break;
      case Kind::kSparse:
        values[i] = random() % 20 != 0 ? 0 : E::Round(normal(random) * bound * 10);
        break;
    }
  }
  return values;
}

// Of `round`, bounds from 1e-12 to 1e3.
inline double BoundOf(uint64_t round) {
  return std::pow(10, -12 + static_cast<double>(round * 7 % 46) / 3);
}

}  // namespace trireme::compress
