// Quantising lane by lane, for every element type: finds a code within the bound where there is one
// and marks the others as exceptions. The fast loops call it for blocks they cannot do.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "compress/element.h"
#include "compress/kernels.h"

namespace trireme::compress {

inline void SetBit(Bits256* bits, size_t lane) { (*bits)[lane / 64] |= uint64_t{1} << (lane % 64); }

// The value that a code stands for.
template <typename E>
typename E::Bits Reconstruct(int32_t code, double step) {
  return E::Round(static_cast<double>(code) * step);
}

// True if `bits` comes back from `code` within the bound.
template <typename E>
bool Holds(typename E::Bits bits, double code, const StepConstants& c) {
  const double back = E::Value(E::Round(code * c.step));
  return std::fabs(E::Value(bits) - back) <= c.bound;  // false for NaN
}

constexpr double kRounder = 0x1.8p52;  // Adding it leaves no fraction, to nearest even.

// No smaller than the |code| of a value of which `exact` is value / step.
inline int32_t ReachOf(double exact) { return static_cast<int32_t>(std::fabs(exact)) + 2; }

// The code of one value; an exception has code 0 and is marked. Raises `farthest` to its reach.
template <typename E>
int32_t QuantiseLane(typename E::Bits bits, const StepConstants& c, size_t lane,
                     Exceptions* exceptions, int32_t* farthest) {
  if (c.keep_zeros && IsNegativeZero<E>(bits)) {
    SetBit(&exceptions->negative_zero, lane);
    exceptions->any = true;
    return 0;
  }
  const double exact = E::Value(bits) * c.inverse;
  const bool small = std::fabs(exact) < static_cast<double>(c.limit - 1);  // false for NaN
  if (small && !(c.keep_zeros && IsDenormal<E>(bits))) {
    double code = (exact + kRounder) - kRounder;
    bool holds = Holds<E>(bits, code, c);
    if (!holds) {
      code += E::Value(bits) > code * c.step ? 1 : -1;
      holds = Holds<E>(bits, code, c);
    }
    if (holds) {
      *farthest = std::max(*farthest, ReachOf(exact));
      return static_cast<int32_t>(code);
    }
  }
  SetBit(&exceptions->raw, lane);
  exceptions->any = true;
  return 0;
}

// Codes of 256 values; returns the largest reach.
template <typename E>
int32_t QuantiseLanes(const typename E::Bits* values, const StepConstants& c, int32_t* codes,
                      Exceptions* exceptions) {
  int32_t farthest = 0;
  for (size_t i = 0; i < kBlockValues; ++i) {
    codes[i] = QuantiseLane<E>(values[i], c, i, exceptions, &farthest);
  }
  return farthest;
}

}  // namespace trireme::compress
