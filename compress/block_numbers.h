// The packed numbers and patches of a block: how 256 residuals become bytes and come back
// (docs/formats/codec_stream.md, Block). Shared by streams and coded segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/kernels.h"

namespace trireme::compress {

inline constexpr uint8_t kWidthMask = 0x3f;
inline constexpr uint8_t kPatchFlag = 0x40;
inline constexpr uint8_t kExceptionFlag = 0x80;

// No block's numbers need more bytes: SearchWidth never chooses worse than all 32 bits.
inline constexpr size_t kMostNumberBytes = PackedBytes(kLargestWidth);

constexpr uint8_t WidthByte(const Shape& shape) {
  return static_cast<uint8_t>(shape.width | (shape.patches > 0 ? kPatchFlag : 0));
}

// Bytes being read: never beyond `end`.
struct ByteSource {
  const std::byte* at = nullptr;
  const std::byte* end = nullptr;

  size_t left() const { return static_cast<size_t>(end - at); }
};

// Writes shape.bytes bytes to the front of `out`, and perhaps others up to its end.
void WriteNumbers(const Kernels& kernels, const Shape& shape, const uint32_t* u,
                  std::span<std::byte> out);

// Where residuals are below 2^8, as in most blocks where any are, and the quantiser's fast loop can
// do it, a block of f32 values is written in one go. Whether to try is told by the block before.
class SmallBlocks {
 public:
  // Writes the block with base 0 to the front of `room`, or leaves it to the caller.
  bool Encode(const Kernels& kernels, const float* x, const StepConstants& constants,
              std::span<std::byte> room, Shape* shape) {
    if (!small_before_ || room.size() < kSmallBlockRoom) return false;
    *shape = {};
    // Zeros come in runs of blocks.
    if (zeros_before_ && kernels.all_zero_f32(x, constants)) return true;
    const bool done = kernels.encode_small_f32(x, constants, shape, room.data());
    zeros_before_ = done && shape->bytes == 0;
    return done;
  }
  // The largest residual of a block that was left to the caller.
  void Saw(uint32_t largest) { small_before_ = largest < kSmallEnd; }

 private:
  static constexpr uint32_t kSmallEnd = 256;
  bool small_before_ = true;
  bool zeros_before_ = false;
};

// Reads the 256 numbers of a block whose width byte has a width of at most 32 and whose first
// `values` numbers count. Null, or what is wrong.
const char* ReadNumbers(const Kernels& kernels, uint8_t width_byte, size_t values,
                        ByteSource* source, uint32_t* u);

// Likewise, but straight to the values of codes with predictor kBase and |q| <= 2^24. `x` has room
// for 256.
const char* DecodeNumbers(const Kernels& kernels, uint8_t width_byte, size_t values, int32_t base,
                          float step, ByteSource* source, float* x);

// Patches at the end of the source, with the slack behind them. The byte before the positions can
// be read as it can in a stream.
struct PatchCopy {
  std::byte bytes[1 + kBlockValues + kMostNumberBytes + kPatchSlack];

  void Take(const std::byte* end, Patches* patches);
};

// Where the numbers of a block lie that ReadNumbers would read, if all is well but perhaps the
// order of patches. `numbers` may point into `copy`.
const char* LocateNumbers(uint8_t width_byte, size_t values, ByteSource* source, PatchCopy* copy,
                          PackedNumbers* numbers);

// Where numbers lie that are not to be decoded now; all that ReadNumbers checks but the order of
// the patches' positions.
struct NumberSizes {
  size_t packed_bytes = 0;
  size_t patches = 0;
  size_t patch_bytes = 0;
  uint32_t bits = 0;  // of the largest number there can be
};
const char* SkipNumbers(uint8_t width_byte, ByteSource* source, NumberSizes* sizes);

// Positions of a block: writes those of the set bits, ascending, and returns their number.
size_t WritePositions(const Bits256& lanes, std::byte* out);
// True if `count` positions ascend and lie below `values`.
bool PositionsAscend(const std::byte* positions, size_t count, size_t values);

}  // namespace trireme::compress
