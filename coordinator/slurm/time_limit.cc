// Days, then up to three numbers, whose meaning depends on how many there are.
#include "coordinator/slurm/time_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace trireme::slurm {
namespace {

constexpr int64_t kMostOfOne = 100000;  // of days, hours, minutes or seconds

std::optional<std::vector<int64_t>> Numbers(std::string_view text) {
  std::vector<int64_t> numbers;
  while (true) {
    const size_t end = std::min(text.find(':'), text.size());
    int64_t number = -1;
    const auto parsed = std::from_chars(text.data(), text.data() + end, number);
    const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + end;
    if (!whole || number < 0 || number > kMostOfOne) return std::nullopt;
    numbers.push_back(number);
    if (end == text.size()) return numbers;
    text.remove_prefix(end + 1);
  }
}

std::optional<int64_t> Seconds(std::string_view text) {
  constexpr int64_t kMinute = 60, kHour = 3600, kDay = 86400;
  if (const size_t dash = text.find('-'); dash != std::string_view::npos) {
    const auto days = Numbers(text.substr(0, dash));
    const auto rest = Numbers(text.substr(dash + 1));
    if (!days || days->size() != 1 || !rest || rest->size() > 3) return std::nullopt;
    int64_t seconds = days->at(0) * kDay, unit = kHour;
    for (const int64_t number : *rest) {
      seconds += number * unit;
      unit /= 60;
    }
    return seconds;
  }
  const auto parts = Numbers(text);
  if (!parts) return std::nullopt;
  const std::vector<int64_t>& n = *parts;
  if (n.size() == 1) return n[0] * kMinute;
  if (n.size() == 2) return n[0] * kMinute + n[1];
  if (n.size() == 3) return n[0] * kHour + n[1] * kMinute + n[2];
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::chrono::seconds> ParseTimeLimit(const std::string& text) {
  const std::optional<int64_t> seconds = Seconds(text);
  if (seconds && *seconds > 0) return std::chrono::seconds(*seconds);
  return absl::InvalidArgumentError(
      fmt::format("time limit: \"{}\" is no time of Slurm, expected minutes, hours:minutes:seconds "
                  "or days-hours:minutes:seconds, as in 90, 12:00:00 or 2-00:00:00",
                  text.substr(0, 50)));
}

std::chrono::seconds WarningBefore(std::chrono::seconds limit) {
  return std::clamp(limit / 3, std::chrono::seconds(1), kLongestWarning);
}

}  // namespace trireme::slurm
