// Quantising lane by lane, for every element type: finds a code within the bound where there is one
// and marks the others as exceptions. The fast loops call it for blocks they cannot do.
#pragma once

#include <cmath>
#include <cstddef>

#include "compress/element.h"
#include "compress/kernels.h"

namespace trireme::compress {

// Lanes of a block that come back from stored bits instead of codes.
struct Exceptions {
  Bits256 raw = {};
  Bits256 negative_zero = {};
  bool any = false;
};

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

// Codes of 256 values; the code of an exception is 0.
template <typename E>
void QuantiseLanes(const typename E::Bits* values, const StepConstants& c, int32_t* codes,
                   Exceptions* exceptions) {
  constexpr double kRounder = 0x1.8p52;  // Adding it leaves no fraction, to nearest even.
  for (size_t i = 0; i < kBlockValues; ++i) {
    const typename E::Bits bits = values[i];
    codes[i] = 0;
    if (bits == 0) continue;
    if (c.keep_zeros && IsNegativeZero<E>(bits)) {
      SetBit(&exceptions->negative_zero, i);
      exceptions->any = true;
      continue;
    }
    const double exact = E::Value(bits) * c.inverse;
    bool holds = std::fabs(exact) < static_cast<double>(c.limit - 1) &&  // false for NaN
                 !(c.keep_zeros && IsDenormal<E>(bits));
    if (holds) {
      double code = (exact + kRounder) - kRounder;
      holds = Holds<E>(bits, code, c);
      if (!holds) {
        code += E::Value(bits) > code * c.step ? 1 : -1;
        holds = Holds<E>(bits, code, c);
      }
      if (holds) codes[i] = static_cast<int32_t>(code);
    }
    if (!holds) {
      SetBit(&exceptions->raw, i);
      exceptions->any = true;
    }
  }
}

}  // namespace trireme::compress
