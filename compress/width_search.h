// Which width is cheapest: walks down from the width of the largest number, as long as that saves
// bytes. The same walk for every table of kernels; only the counting differs.
#pragma once

#include <bit>

#include "compress/kernels.h"

namespace trireme::compress {

// `count_wider(w)`: how many of 256 numbers are >= 2^w; called for falling w.
template <typename CountWider>
Shape SearchWidth(uint32_t largest, CountWider count_wider) {
  if (largest == 0) return {};
  Shape best;
  best.width = static_cast<uint32_t>(std::bit_width(largest));
  best.bytes = static_cast<uint32_t>(PackedBytes(best.width));
  for (uint32_t width = best.width; width-- > 0;) {
    const uint32_t patches = count_wider(width);
    if (patches > 255) break;
    const uint32_t high_bits = HighBits(largest, width);
    const uint32_t bytes =
        static_cast<uint32_t>(PackedBytes(width)) + PatchBytes(patches, high_bits);
    // One step may cost more and the next less, where few numbers have many more bits.
    if (bytes > best.bytes + 64) break;
    if (bytes < best.bytes) best = {width, high_bits, patches, bytes};
  }
  return best;
}

}  // namespace trireme::compress
