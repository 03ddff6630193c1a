// bfloat16: the upper half of an f32. Storage alone; sums are made in f32.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme::tensor {

struct BFloat16 {
  uint16_t bits = 0;

  constexpr BFloat16() = default;
  // To the nearest, ties to even; a NaN stays one (quiet), as AVX512_BF16's conversion does.
  constexpr explicit BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
    bits = static_cast<uint16_t>(is_nan ? word >> 16 | 0x40u
                                        : (word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  friend bool operator==(const BFloat16&, const BFloat16&) = default;
};
static_assert(sizeof(BFloat16) == 2);

}  // namespace trireme::tensor
