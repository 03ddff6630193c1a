#include "compress/block_numbers.h"

#include <cstring>

namespace trireme::compress {
namespace {

// Positions and high parts of the listed numbers, the latter low bits first.
void WritePatches(const Shape& shape, const uint32_t* u, const uint32_t* list, std::byte* out) {
  std::byte* high = out + shape.patches;
  uint64_t held = 0;
  uint32_t held_bits = 0;
  for (uint32_t k = 0; k < shape.patches; ++k) {
    out[k] = static_cast<std::byte>(list[k]);
    held |= static_cast<uint64_t>((u[list[k]] >> shape.width) - 1) << held_bits;
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

struct PatchHead {
  size_t count = 0;
  uint32_t high_bits = 0;
  size_t high_bytes = 0;
};

const char* ReadPatchHead(uint32_t width, ByteSource* source, PatchHead* head) {
  if (source->left() < 2) return "ends inside the patches of a block";
  head->count = std::to_integer<size_t>(source->at[0]);
  head->high_bits = std::to_integer<uint32_t>(source->at[1]);
  if (head->count == 0) return "a block announces patches and has none";
  if (width + head->high_bits > kLargestWidth) return "a block's patches have over 32 bits";
  head->high_bytes = (head->count * head->high_bits + 7) / 8;
  if (source->left() < 2 + head->count + head->high_bytes) {
    return "ends inside the patches of a block";
  }
  source->at += 2;
  return nullptr;
}

const char* ReadPatches(uint32_t width, size_t values, ByteSource* source, uint32_t* u) {
  PatchHead head;
  if (const char* fault = ReadPatchHead(width, source, &head)) return fault;
  const std::byte* positions = source->at;
  const std::byte* high = positions + head.count;
  // Numbers are read as 8 bytes each; at the end of the source from a copy.
  std::byte copy[kMostNumberBytes + 8];
  source->at = high + head.high_bytes;
  if (source->left() < 8) {
    std::memcpy(copy, high, head.high_bytes);
    std::memset(copy + head.high_bytes, 0, 8);
    high = copy;
  }
  const uint64_t mask = (uint64_t{1} << head.high_bits) - 1;
  size_t bit = 0;
  int before = -1;
  bool ascend = std::to_integer<size_t>(positions[head.count - 1]) < values;
  for (size_t k = 0; k < head.count; ++k, bit += head.high_bits) {
    uint64_t word = 0;
    std::memcpy(&word, high + bit / 8, sizeof(word));
    const auto part = static_cast<uint32_t>((word >> (bit % 8)) & mask) + 1;
    const int position = std::to_integer<int>(positions[k]);
    ascend &= position > before;
    before = position;
    // width < 32: a patched number has at least one bit above it.
    u[position] += part << width;
  }
  return ascend ? nullptr : "positions of patches do not ascend inside the block";
}

}  // namespace

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

void WriteNumbers(const Kernels& kernels, const Shape& shape, const uint32_t* u, std::byte* out) {
  if (shape.width > 0) kernels.pack(shape.width, u, out);
  if (shape.patches == 0) return;
  out += PackedBytes(shape.width);
  out[0] = static_cast<std::byte>(shape.patches);
  out[1] = static_cast<std::byte>(shape.high_bits);
  uint32_t list[kListRoom];
  kernels.list_wide(u, shape.width, list);
  WritePatches(shape, u, list, out + 2);
}

const char* ReadNumbers(const Kernels& kernels, uint8_t width_byte, size_t values,
                        ByteSource* source, uint32_t* u) {
  const uint32_t width = width_byte & kWidthMask;
  if (source->left() < PackedBytes(width)) return "ends inside a block's packed numbers";
  if (width > 0) {
    kernels.unpack(width, source->at, u);
    source->at += PackedBytes(width);
  } else {
    std::memset(u, 0, kBlockValues * sizeof(uint32_t));
  }
  if ((width_byte & kPatchFlag) == 0) return nullptr;
  if (width == kLargestWidth) return "a block of 32-bit numbers has patches";
  return ReadPatches(width, values, source, u);
}

const char* SkipNumbers(uint8_t width_byte, ByteSource* source, NumberSizes* sizes) {
  const uint32_t width = width_byte & kWidthMask;
  *sizes = {PackedBytes(width), 0, 0, width};
  if (source->left() < sizes->packed_bytes) return "ends inside a block's packed numbers";
  source->at += sizes->packed_bytes;
  if ((width_byte & kPatchFlag) == 0) return nullptr;
  if (width == kLargestWidth) return "a block of 32-bit numbers has patches";
  PatchHead head;
  if (const char* fault = ReadPatchHead(width, source, &head)) return fault;
  source->at += head.count + head.high_bytes;
  sizes->patches = head.count;
  sizes->patch_bytes = 2 + head.count + head.high_bytes;
  sizes->bits = width + head.high_bits + 1;
  return nullptr;
}

}  // namespace trireme::compress
