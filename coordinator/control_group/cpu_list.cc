#include "coordinator/control_group/cpu_list.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace trireme::control_group {
namespace {

constexpr int kLargestCpu = 65535;
constexpr std::string_view kBlank = " \t\n";

// Takes a number off the front of `text`; nullopt: there is none.
std::optional<int> TakeNumber(std::string_view& text) {
  int number = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || number < 0 || number > kLargestCpu) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
  return number;
}

}  // namespace

std::optional<CpuSet> ParseCpuList(std::string_view text) {
  CpuSet cpus;
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return cpus;
  text = text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
  for (int last = -1;;) {
    const std::optional<int> from = TakeNumber(text);
    std::optional<int> to = from;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      to = TakeNumber(text);
    }
    if (!from || !to || *from <= last || *to < *from) return std::nullopt;
    for (int cpu = *from; cpu <= *to; ++cpu) cpus.insert(cpus.end(), cpu);
    last = *to;
    if (text.empty()) return cpus;
    if (text.front() != ',') return std::nullopt;
    text.remove_prefix(1);
  }
}

std::string CpuListText(const CpuSet& cpus) {
  std::string text;
  for (auto at = cpus.begin(); at != cpus.end();) {
    const int first = *at;
    int last = first;
    while (++at != cpus.end() && *at == last + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == first ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

}  // namespace trireme::control_group
