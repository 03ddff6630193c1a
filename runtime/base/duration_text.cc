#include "runtime/base/duration_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace trireme::base {
namespace {

struct Unit {
  int64_t seconds;
  const char* name;
};
constexpr Unit kUnits[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};

}  // namespace

std::string DurationText(std::chrono::nanoseconds duration) {
  int64_t seconds = std::max<int64_t>(0, std::chrono::ceil<std::chrono::seconds>(duration).count());
  size_t first = 0;
  while (first + 1 < std::size(kUnits) && seconds < kUnits[first].seconds) ++first;
  const size_t last = std::min(first + 1, std::size(kUnits) - 1);
  const int64_t step = kUnits[last].seconds;
  seconds = (seconds + step - 1) / step * step;
  // Rounded up to one of the unit before.
  if (first > 0 && seconds >= kUnits[first - 1].seconds) --first;
  const int64_t count = seconds / kUnits[first].seconds;
  const int64_t rest = seconds % kUnits[first].seconds;
  std::string text = fmt::format("{} {}", count, kUnits[first].name);
  if (rest > 0) text += fmt::format(" {} {}", rest / step, kUnits[last].name);
  return text;
}

}  // namespace trireme::base
