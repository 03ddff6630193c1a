// Scaling of values by lines (coding.h): exact, as all scales are powers of two.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/comm/coding.h"

namespace trireme::comm {

enum class Scaling : uint8_t { kDivide, kMultiply };

// to[i] = from[i] divided or multiplied by the scale of element begin + i. `from` and `to` may be
// the same; `lines` as in CodedRun.
void ApplyScales(std::span<const ScaleLine> lines, int64_t begin, Scaling scaling,
                 std::span<const float> from, float* to);
// The largest scale of elements [begin, end).
double LargestScale(std::span<const ScaleLine> lines, int64_t begin, int64_t end);

}  // namespace trireme::comm
