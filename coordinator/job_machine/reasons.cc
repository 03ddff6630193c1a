#include "coordinator/job_machine/reasons.h"

#include <fmt/format.h>

namespace trireme::coordinator {
namespace {

constexpr char kAtWork[] = " is at work";
constexpr char kSavesFail[] = "; ";

}  // namespace

std::string OneLine(const std::string& text) {
  // A rank's failure with two paths in it ends in the advice, which is what people need.
  constexpr size_t kMostBytes = 600;
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool blank = byte <= 0x20 || byte == 0x7f;
    if (blank && (line.empty() || line.back() == ' ')) continue;
    line += blank ? ' ' : c;
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  if (line.size() <= kMostBytes) return line;
  size_t end = kMostBytes;
  // Bytes 10xxxxxx go on with a character that began before them.
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
  return line.substr(0, end) + "...";
}

std::string AtWork(const std::string& attempt, const std::string& saves_fail) {
  return attempt + kAtWork + (saves_fail.empty() ? "" : kSavesFail + saves_fail);
}

bool TellsOfFailedSaves(const std::string& reason) {
  return reason.find(std::string(kAtWork) + kSavesFail) != std::string::npos;
}

std::string NameOf(const std::string& by) {
  const std::string name = OneLine(by);
  return name.empty() ? "somebody" : name;
}

std::string EndingOf(int exit_code, const v1::Failure& failure) {
  const std::string headline = OneLine(failure.headline());
  if (!headline.empty()) return headline;
  if (exit_code > 128) {
    return fmt::format("ended with exit code {} (signal {})", exit_code, exit_code - 128);
  }
  return fmt::format("ended with exit code {}", exit_code);
}

std::string DurationText(int64_t duration_ns) {
  const int64_t ms = duration_ns / 1000000;
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{} ms", ms);
}

}  // namespace trireme::coordinator
