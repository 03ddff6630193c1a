// The element types: bits, exact value, rounding. Every function is plain IEEE arithmetic to
// nearest even, so that all processors agree.
#pragma once

#include <bit>
#include <cstdint>

#include "compress/codec.h"

namespace trireme::compress {

struct F32 {
  using Bits = uint32_t;
  using Ordered = int32_t;
  static constexpr ElementType kType = ElementType::kF32;
  static constexpr Bits kSign = 0x80000000, kInfinity = 0x7f800000, kSmallestNormal = 0x00800000;
  static double Value(Bits bits) { return static_cast<double>(std::bit_cast<float>(bits)); }
  static Bits Round(double value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }
};

struct F64 {
  using Bits = uint64_t;
  using Ordered = int64_t;
  static constexpr ElementType kType = ElementType::kF64;
  static constexpr Bits kSign = uint64_t{1} << 63, kInfinity = uint64_t{0x7ff} << 52,
                        kSmallestNormal = uint64_t{1} << 52;
  static double Value(Bits bits) { return std::bit_cast<double>(bits); }
  static Bits Round(double value) { return std::bit_cast<uint64_t>(value); }
};

struct BF16 {
  using Bits = uint16_t;
  using Ordered = int16_t;
  static constexpr ElementType kType = ElementType::kBF16;
  static constexpr Bits kSign = 0x8000, kInfinity = 0x7f80, kSmallestNormal = 0x0080;
  static double Value(Bits bits) {
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  }
  // Of a finite value.
  static Bits Round(double value) {
    const uint32_t bits = F32::Round(value);
    return static_cast<Bits>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

struct F16 {
  using Bits = uint16_t;
  using Ordered = int16_t;
  static constexpr ElementType kType = ElementType::kF16;
  static constexpr Bits kSign = 0x8000, kInfinity = 0x7c00, kSmallestNormal = 0x0400;
  static double Value(Bits bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & kSign) << 16;
    const uint32_t magnitude = bits & 0x7fff;
    // Not through an f32 denormal, which a program may have told its processor to flush to zero.
    const float denormal = static_cast<float>(magnitude) * 0x1p-24F;
    uint32_t wide = (magnitude << 13) + 0x38000000;
    if (magnitude >= kInfinity) wide = (magnitude << 13) | 0x7f800000;
    if (magnitude < kSmallestNormal) wide = std::bit_cast<uint32_t>(denormal);
    return static_cast<double>(std::bit_cast<float>(wide | sign));
  }
  // Of a finite value.
  static Bits Round(double value) {
    const uint32_t bits = F32::Round(value);
    const auto sign = static_cast<Bits>((bits >> 16) & kSign);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x477ff000) return static_cast<Bits>(sign | kInfinity);  // >= 65520
    if (magnitude < 0x38800000) {  // < 2^-14: adding 2^-1 leaves units of 2^-24
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
      return static_cast<Bits>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
    }
    const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return static_cast<Bits>(sign | ((rounded - 0x38000000) >> 13));
  }
};

template <typename E>
bool IsFinite(typename E::Bits bits) {
  return static_cast<typename E::Bits>(bits & ~E::kSign) < E::kInfinity;
}
template <typename E>
bool IsNegativeZero(typename E::Bits bits) {
  return bits == E::kSign;
}
template <typename E>
bool IsDenormal(typename E::Bits bits) {
  const auto magnitude = static_cast<typename E::Bits>(bits & ~E::kSign);
  return magnitude != 0 && magnitude < E::kSmallestNormal;
}

// The bits as an integer that is in the order of the numbers; its own inverse.
template <typename E>
typename E::Ordered ToOrdered(typename E::Bits bits) {
  const auto value = static_cast<typename E::Ordered>(bits);
  constexpr auto kAllButSign = static_cast<typename E::Ordered>(~E::kSign);
  return static_cast<typename E::Ordered>(value ^ (value < 0 ? kAllButSign : 0));
}

// Calls function(E{}) with the element type's traits.
template <typename Function>
auto WithElement(ElementType type, Function function) {
  switch (type) {
    case ElementType::kBF16:
      return function(BF16{});
    case ElementType::kF16:
      return function(F16{});
    case ElementType::kF64:
      return function(F64{});
    case ElementType::kF32:
      break;
  }
  return function(F32{});
}

}  // namespace trireme::compress
