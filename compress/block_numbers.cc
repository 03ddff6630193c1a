#include "compress/block_numbers.h"

#include <cstring>

namespace trireme::compress {
namespace {

constexpr const char* kCutNumbers = "ends inside a block's packed numbers";
constexpr const char* kPatchOrder = "positions of patches do not ascend inside the block";

// `source` moves to the positions.
const char* ReadPatchHead(uint32_t width, ByteSource* source, Patches* patches) {
  if (source->left() < 2) return "ends inside the patches of a block";
  patches->count = std::to_integer<size_t>(source->at[0]);
  patches->high_bits = std::to_integer<uint32_t>(source->at[1]);
  if (width == kLargestWidth) return "a block of 32-bit numbers has patches";
  if (patches->count == 0) return "a block announces patches and has none";
  if (width + patches->high_bits > kLargestWidth) return "a block's patches have over 32 bits";
  const size_t high_bytes = (patches->count * patches->high_bits + 7) / 8;
  if (source->left() < 2 + patches->count + high_bytes) {
    return "ends inside the patches of a block";
  }
  patches->positions = source->at + 2;
  patches->high = patches->positions + patches->count;
  source->at += 2 + patches->count + high_bytes;
  return nullptr;
}

// The patches of a block, if it has any, whose last one must lie inside the block.
const char* ReadPatches(uint8_t width_byte, size_t values, ByteSource* source, PatchCopy* copy,
                        Patches* patches) {
  if ((width_byte & kPatchFlag) == 0) return nullptr;
  if (const char* fault = ReadPatchHead(width_byte & kWidthMask, source, patches)) return fault;
  if (source->left() < kPatchSlack) copy->Take(source->at, patches);
  const bool inside = std::to_integer<size_t>(patches->positions[patches->count - 1]) < values;
  return inside ? nullptr : kPatchOrder;
}

}  // namespace

void PatchCopy::Take(const std::byte* end, Patches* patches) {
  const auto size = static_cast<size_t>(end - patches->positions);
  std::memcpy(bytes + 1, patches->positions, size);
  bytes[0] = std::byte{0};
  std::memset(bytes + 1 + size, 0, kPatchSlack);
  patches->positions = bytes + 1;
  patches->high = bytes + 1 + patches->count;
}

size_t WritePositions(const Bits256& lanes, std::byte* out) {
  const std::byte* const begin = out;
  for (size_t word = 0; word < lanes.size(); ++word) {
    for (uint64_t bits = lanes[word]; bits != 0; bits &= bits - 1) {
      *out++ = static_cast<std::byte>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
  return static_cast<size_t>(out - begin);
}

bool PositionsAscend(const std::byte* positions, size_t count, size_t values) {
  bool ascend = count == 0 || std::to_integer<size_t>(positions[count - 1]) < values;
  for (size_t k = 1; k < count; ++k) ascend &= positions[k - 1] < positions[k];
  return ascend;
}

void WriteNumbers(const Kernels& kernels, const Shape& shape, const uint32_t* u,
                  std::span<std::byte> out) {
  if (out.size() >= shape.bytes + kWriteSlack) {
    kernels.write_numbers(shape, u, out.data());
    return;
  }
  std::byte wider[kMostNumberBytes + kWriteSlack];
  kernels.write_numbers(shape, u, wider);
  std::memcpy(out.data(), wider, shape.bytes);
}

const char* LocateNumbers(uint8_t width_byte, size_t values, ByteSource* source, PatchCopy* copy,
                          PackedNumbers* numbers) {
  numbers->width = width_byte & kWidthMask;
  if (source->left() < PackedBytes(numbers->width)) return kCutNumbers;
  numbers->packed = source->at;
  source->at += PackedBytes(numbers->width);
  return ReadPatches(width_byte, values, source, copy, &numbers->patches);
}

const char* ReadNumbers(const Kernels& kernels, uint8_t width_byte, size_t values,
                        ByteSource* source, uint32_t* u) {
  PackedNumbers numbers;
  PatchCopy copy;
  const char* fault = LocateNumbers(width_byte, values, source, &copy, &numbers);
  if (fault != nullptr) return fault;
  if (numbers.width > 0) {
    kernels.unpack(numbers.width, numbers.packed, u);
  } else {
    std::memset(u, 0, kBlockValues * sizeof(uint32_t));
  }
  const auto add = [u](size_t position, uint32_t high) { u[position] += high; };
  return ForEachPatch(numbers.patches, numbers.width, add) ? nullptr : kPatchOrder;
}

const char* DecodeNumbers(const Kernels& kernels, uint8_t width_byte, size_t values, int32_t base,
                          float step, ByteSource* source, float* x) {
  PackedNumbers numbers;
  PatchCopy copy;
  const char* fault = LocateNumbers(width_byte, values, source, &copy, &numbers);
  if (fault != nullptr) return fault;
  return kernels.decode_f32(numbers.width, numbers.packed, numbers.patches, base, step, x)
             ? nullptr
             : kPatchOrder;
}

const char* SkipNumbers(uint8_t width_byte, ByteSource* source, NumberSizes* sizes) {
  const uint32_t width = width_byte & kWidthMask;
  *sizes = {PackedBytes(width), 0, 0, width};
  if (source->left() < sizes->packed_bytes) return kCutNumbers;
  source->at += sizes->packed_bytes;
  if ((width_byte & kPatchFlag) == 0) return nullptr;
  Patches patches;
  const std::byte* const before = source->at;
  if (const char* fault = ReadPatchHead(width, source, &patches)) return fault;
  sizes->patches = patches.count;
  sizes->patch_bytes = static_cast<size_t>(source->at - before);
  sizes->bits = width + patches.high_bits + 1;
  return nullptr;
}

}  // namespace trireme::compress
