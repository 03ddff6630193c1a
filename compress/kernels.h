// The inner loops over one block of 256 values, as a table of functions: one table per instruction
// set (vector_kernels.cc, Highway) and one in plain C++ (reference_kernels.cc), which says what the
// others must compute. All tables give the same bits.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace trireme::compress {

inline constexpr size_t kBlockValues = 256;
inline constexpr size_t kLanes = 16;
inline constexpr size_t kRows = kBlockValues / kLanes;
inline constexpr size_t kLargestWidth = 32;
inline constexpr size_t kListRoom = kBlockValues + kLanes;

// Bytes of the packed numbers of a block.
constexpr size_t PackedBytes(size_t width) { return 32 * width; }

enum class Predictor : uint8_t { kBase = 0, kFirst = 1, kSecond = 2 };

// The former codes that differences go on from.
struct Chain {
  int32_t last = 0;
  int32_t before_last = 0;
};

// The quantiser in the forms the loops need.
struct StepConstants {
  double step = 0;
  double inverse = 0;      // 1 / step
  double bound = 0;        // for all but f64 rounded down to f32
  int32_t limit = 0;       // |q| < limit
  bool keep_zeros = true;  // -0 and denormals must come back bit for bit
};

// How a block's residuals are best stored: `width` bits each, and for `patches` of them, all that
// are >= 2^width, `high_bits` more.
struct Shape {
  uint32_t width = 0;
  uint32_t high_bits = 0;
  uint32_t patches = 0;
  uint32_t bytes = 0;  // packed numbers and patches
};

// Values up to this part of a step have code 0, however the arithmetic rounds.
inline constexpr double kCertainlyZero = 0.49;

using Bits256 = std::array<uint64_t, 4>;

// Lanes of a block that come back from stored bits instead of codes.
struct Exceptions {
  Bits256 raw = {};
  Bits256 negative_zero = {};
  bool any = false;
};

// Sums over the finite values of a span, in 16 lanes that are added up pairwise at the end.
struct Moments {
  double sum_of_squares = 0;
  double smallest = 0, largest = 0;  // valid where finite > 0
  uint64_t finite = 0;
};

// Patches as they lie in a stream. kPatchSlack bytes behind them can be read.
struct Patches {
  size_t count = 0;
  uint32_t high_bits = 0;
  const std::byte* positions = nullptr;
  const std::byte* high = nullptr;
};
inline constexpr size_t kPatchSlack = 64;

// The numbers of a block as they lie in a stream.
struct PackedNumbers {
  uint32_t width = 0;
  const std::byte* packed = nullptr;
  Patches patches;

  // No number has more.
  uint32_t bits() const { return width + (patches.count > 0 ? patches.high_bits + 1 : 0); }
};
inline constexpr uint32_t kSmallTermBits = 7;  // The sum of two such codes is a residual of a byte.

// Calls patch(position, number) for each patch of numbers of `width` bits; the number, to be added
// to the packed one, is the part above its bits. True if the positions ascend.
template <typename Patch>
bool ForEachPatch(const Patches& patches, uint32_t width, Patch patch) {
  const uint64_t mask = (uint64_t{1} << patches.high_bits) - 1;
  size_t bit = 0;
  int before = -1;
  bool ascend = true;
  for (size_t k = 0; k < patches.count; ++k, bit += patches.high_bits) {
    uint64_t word = 0;
    std::memcpy(&word, patches.high + bit / 8, sizeof(word));
    const auto part = static_cast<uint32_t>((word >> (bit % 8)) & mask) + 1;
    const int position = std::to_integer<int>(patches.positions[k]);
    ascend &= position > before;
    before = position;
    // width < 32: a patched number has at least one bit above it.
    patch(static_cast<size_t>(position), part << width);
  }
  return ascend;
}

inline constexpr size_t kWriteSlack = 80;
inline constexpr size_t kSmallBlockRoom = PackedBytes(8) + kWriteSlack;

// Positions and high parts of the listed numbers, the latter low bits first.
template <typename Number>
void WritePatches(const Shape& shape, const Number* u, const uint32_t* list, std::byte* out) {
  std::byte* high = out + shape.patches;
  uint64_t held = 0;
  uint32_t held_bits = 0;
  for (uint32_t k = 0; k < shape.patches; ++k) {
    out[k] = static_cast<std::byte>(list[k]);
    held |= static_cast<uint64_t>((uint32_t{u[list[k]]} >> shape.width) - 1) << held_bits;
    held_bits += shape.high_bits;
    if (held_bits >= 32) {
      const auto low = static_cast<uint32_t>(held);
      std::memcpy(high, &low, 4);
      high += 4;
      held >>= 32;
      held_bits -= 32;
    }
  }
  std::memcpy(high, &held, (held_bits + 7) / 8);
}

struct Kernels {
  const char* name;

  // q[i] = nearest integer of x[i] / step, for 256 values. True where all of them are within the
  // bound, |q| < 2^22 and, with keep_zeros, none is -0 or denormal; else q is unspecified.
  bool (*quantise_f32)(const float* x, const StepConstants& constants, int32_t* q);
  // Likewise, but straight to residuals with base 0; sets the largest.
  bool (*quantise_plain_f32)(const float* x, const StepConstants& constants, uint32_t* u,
                             uint32_t* largest);
  // Twice as fast: true if quantise_plain_f32 would certainly give 256 zeros.
  bool (*all_zero_f32)(const float* x, const StepConstants& constants);
  // quantise_plain_f32, choose_shape and write_numbers at once, where all residuals are below 2^8;
  // else, and where quantise_plain_f32 gives false, false. `out` has room for kSmallBlockRoom.
  bool (*encode_small_f32)(const float* x, const StepConstants& constants, Shape* shape,
                           std::byte* out);
  // The codes of 256 values, whatever they are, by f64 arithmetic; exceptions have code 0 and are
  // marked (compress/lane_quantiser.h). Returns the largest reach,
  // which is not below any |q|.
  int32_t (*quantise_lanes_f32)(const float* x, const StepConstants& constants, int32_t* q,
                                Exceptions* exceptions);
  // The residuals u of 256 codes; moves `chain` on. Returns the largest u.
  uint32_t (*residuals)(Predictor predictor, const int32_t* q, int32_t base, Chain* chain,
                        uint32_t* u);
  // The cheapest shape of 256 residuals, of which `largest` is the largest.
  Shape (*choose_shape)(const uint32_t* u, uint32_t largest);
  // Sum of the bit lengths of u, by which samples are compared.
  uint32_t (*bit_lengths)(const uint32_t* u);
  // Packed numbers and patches of a shape that choose_shape gave for u: shape.bytes bytes, and up
  // to kWriteSlack behind them that mean nothing.
  void (*write_numbers)(const Shape& shape, const uint32_t* u, std::byte* out);
  // The low `width` bits (1 to 32) of 256 numbers to PackedBytes(width) bytes, and back.
  void (*pack)(uint32_t width, const uint32_t* u, std::byte* packed);
  void (*unpack)(uint32_t width, const std::byte* packed, uint32_t* u);
  // Codes from residuals; moves `chain` on.
  void (*codes)(Predictor predictor, const uint32_t* u, int32_t base, Chain* chain, int32_t* q);
  // x[i] = q[i] * step rounded to f32. Not wide: |q| <= 2^24.
  void (*dequantise_f32)(const int32_t* q, double step, bool wide, float* x);
  // unpack, patches, codes and dequantise_f32 at once, for predictor kBase and |q| <= 2^24; width 0
  // to 32, with patches below 32. True if the positions of the patches ascend.
  bool (*decode_f32)(uint32_t width, const std::byte* packed, const Patches& patches, int32_t base,
                     float step, float* x);
  // 256 times the same.
  void (*fill_f32)(float value, float* x);
  // u[i] = residual (base 0) of the code a[i] + b[i]. Codes as f32 numbers, which decode_f32 gives
  // for step 1; |a[i] + b[i]| <= 2^24. Returns the largest.
  uint32_t (*add)(const float* a, const float* b, uint32_t* u);
  // The residuals of the sums of two blocks' codes, all with base 0, in their cheapest shape. No
  // term has more than kSmallTermBits; `out` has room for kSmallBlockRoom. False where the
  // positions of patches do not ascend.
  bool (*add_small)(const PackedNumbers& a, const PackedNumbers& b, Shape* shape, std::byte* out);
  Moments (*moments_f32)(const float* x, size_t count);
};

const Kernels& BestKernels();
const Kernels& ReferenceKernels();
// The tables of this processor, best first, the reference last. Only for tests and measurements:
// other rooms' loops may run on a lesser instruction set while the first call lasts.
std::span<const Kernels* const> AllKernels();

constexpr uint32_t ZigZag(int32_t d) {
  return (static_cast<uint32_t>(d) << 1) ^ static_cast<uint32_t>(d >> 31);
}
constexpr int32_t FromZigZag(uint32_t u) { return static_cast<int32_t>((u >> 1) ^ (0 - (u & 1))); }

// Bits of the high parts above `width` of numbers up to `largest` >= 2^width, less one each.
constexpr uint32_t HighBits(uint32_t largest, uint32_t width) {
  return static_cast<uint32_t>(std::bit_width((largest >> width) - 1));
}
constexpr uint32_t PatchBytes(uint32_t patches, uint32_t high_bits) {
  return patches == 0 ? 0 : 2 + patches + (patches * high_bits + 7) / 8;
}

}  // namespace trireme::compress
