#include "runtime/comm/scale_lines.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace trireme::comm {

// Part of a line.
struct ScaleStretch {
  float row = 1;
  const float* columns = nullptr;
  size_t count = 0;
};

}  // namespace trireme::comm

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/comm/scale_lines.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "runtime/comm/scale_lines.inc"

namespace trireme::comm {
namespace {

HWY_EXPORT(Divide);
HWY_EXPORT(Multiply);
HWY_EXPORT(Largest);

// Calls with the stretches of [begin, end) in order, and where each begins.
template <typename Call>
void ForStretches(std::span<const ScaleLine> lines, int64_t begin, int64_t end, const Call& call) {
  auto line = std::upper_bound(lines.begin(), lines.end(), begin,
                               [](int64_t at, const ScaleLine& one) { return at < one.begin; });
  TRIREME_CHECK(line != lines.begin());
  for (--line; begin < end; ++line) {
    const int64_t border = line + 1 == lines.end() ? end : std::min(end, (line + 1)->begin);
    const float* columns = line->columns == nullptr ? nullptr : line->columns + begin - line->begin;
    call(begin, ScaleStretch{line->row, columns, static_cast<size_t>(border - begin)});
    begin = border;
  }
}

}  // namespace

void ApplyScales(std::span<const ScaleLine> lines, int64_t begin, Scaling scaling,
                 std::span<const float> from, float* to) {
  ForStretches(lines, begin, begin + std::ssize(from),
               [&](int64_t at, const ScaleStretch& stretch) {
                 const float* source = from.data() + (at - begin);
                 if (scaling == Scaling::kDivide) {
                   HWY_DYNAMIC_DISPATCH(Divide)(stretch, source, to + (at - begin));
                 } else {
                   HWY_DYNAMIC_DISPATCH(Multiply)(stretch, source, to + (at - begin));
                 }
               });
}

double LargestScale(std::span<const ScaleLine> lines, int64_t begin, int64_t end) {
  double largest = 0;
  // Whole rows share their columns: looked at once, not for every row.
  const float* columns = nullptr;
  size_t count = 0;
  float column = 1;
  ForStretches(lines, begin, end, [&](int64_t, const ScaleStretch& stretch) {
    if (stretch.columns != columns || stretch.count != count) {
      columns = stretch.columns;
      count = stretch.count;
      column = columns == nullptr ? 1 : HWY_DYNAMIC_DISPATCH(Largest)(columns, count);
    }
    largest = std::max(largest, static_cast<double>(stretch.row) * static_cast<double>(column));
  });
  return largest;
}

}  // namespace trireme::comm
