// Fields between bars; the last one may hold anything but a line feed.
#include "coordinator/slurm/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "coordinator/process/command.h"

namespace trireme::slurm {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

template <typename Visit>
void ForEachLine(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// At most `count` fields, the last with what is left.
std::vector<std::string_view> Fields(std::string_view line, size_t count) {
  std::vector<std::string_view> fields;
  while (fields.size() + 1 < count && line.find('|') != std::string_view::npos) {
    const size_t bar = line.find('|');
    fields.push_back(line.substr(0, bar));
    line.remove_prefix(bar + 1);
  }
  fields.push_back(line);
  return fields;
}

// The number at the front of `text`; nullopt: none, or too large.
std::optional<uint64_t> Leading(std::string_view text) {
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() ? std::optional<uint64_t>(number) : std::nullopt;
}

std::optional<uint64_t> Whole(std::string_view text) {
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  return digits ? Leading(text) : std::nullopt;
}

JobPhase PhaseOf(std::string_view state) {
  static const std::set<std::string_view> pending{"PENDING",      "REQUEUED",     "REQUEUE_FED",
                                                  "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"};
  static const std::set<std::string_view> ended{
      "BOOT_FAIL", "CANCELLED",     "COMPLETED", "DEADLINE", "FAILED",
      "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",  "TIMEOUT"};
  if (pending.count(state) != 0) return JobPhase::kPending;
  // What is not known may run.
  return ended.count(state) != 0 ? JobPhase::kEnded : JobPhase::kLive;
}

// "gpu:2", "gpu:a100:4(S:0-1),shard:8": of one node.
uint64_t GpusOf(std::string_view resources) {
  uint64_t gpus = 0;
  while (!resources.empty()) {
    // A bracket may hold commas.
    size_t end = 0;
    for (int depth = 0; end < resources.size(); ++end) {
      if (resources[end] == '(') ++depth;
      if (resources[end] == ')') --depth;
      if (resources[end] == ',' && depth <= 0) break;
    }
    std::string_view one = resources.substr(0, end);
    resources.remove_prefix(std::min(end + 1, resources.size()));
    one = one.substr(0, one.find('('));
    if (one.substr(0, 4) != "gpu:") continue;
    const auto count = Whole(one.substr(one.rfind(':') + 1));
    if (count && *count < 10000) gpus += *count;
  }
  return gpus;
}

}  // namespace

std::vector<SlurmJob> ParseQueue(const std::string& text) {
  std::vector<SlurmJob> jobs;
  ForEachLine(text, [&](std::string_view line) {
    const std::vector<std::string_view> fields = Fields(line, 4);
    if (fields.size() != 4) return;
    const auto id = Whole(fields[0]);
    if (!id || *id == 0 || fields[1].empty()) return;
    SlurmJob& job = jobs.emplace_back();
    job.id = *id;
    job.state = process::FirstLine(std::string(fields[1]));
    job.phase = PhaseOf(fields[1]);
    if (fields[2] != "None") job.reason = process::FirstLine(std::string(fields[2]));
    job.comment = std::string(fields[3]);
  });
  return jobs;
}

std::vector<Step> ParseSteps(const std::string& text) {
  std::vector<Step> steps;
  ForEachLine(text, [&](std::string_view line) {
    const std::vector<std::string_view> fields = Fields(line, 2);
    if (fields.size() != 2) return;
    const size_t point = std::min(fields[0].find('.'), fields[0].size());
    // "12.0", of a task of an array "12_3.0", of a part of a heterogeneous job "12+1.0"; its batch
    // file is a step without a number.
    const std::string_view job = fields[0].substr(0, point);
    const bool numbers = !job.empty() && std::isdigit(static_cast<unsigned char>(job[0])) != 0 &&
                         job.find_first_not_of("0123456789_+") == std::string_view::npos &&
                         Whole(fields[0].substr(std::min(point + 1, fields[0].size())));
    if (numbers) steps.push_back({std::string(fields[0]), std::string(fields[1])});
  });
  return steps;
}

absl::StatusOr<Capacity> ParsePartition(const std::string& text, const std::string& partition) {
  Capacity capacity;
  std::set<std::string, std::less<>> seen;
  ForEachLine(text, [&](std::string_view line) {
    const std::vector<std::string_view> fields = Fields(line, 5);
    if (fields.size() != 5) return;
    std::string_view name = fields[1];
    const bool is_default = !name.empty() && name.back() == '*';
    if (is_default) name.remove_suffix(1);
    if (partition.empty() ? !is_default : name != partition) return;
    const auto cpus = Leading(fields[2]);
    const auto memory_mib = Leading(fields[3]);
    if (!cpus || !memory_mib || *cpus > 1000000 || *memory_mib > (uint64_t{1} << 40)) return;
    if (!seen.emplace(fields[0]).second) return;
    ++capacity.nodes;
    capacity.cpus += *cpus;
    capacity.memory_bytes += *memory_mib * kMiB;
    capacity.gpus += GpusOf(fields[4]);
  });
  if (capacity.nodes > 0) return capacity;
  return absl::NotFoundError(
      partition.empty()
          ? std::string("Slurm has no default partition: name one with --partition (sinfo lists "
                        "them)")
          : fmt::format("Slurm has no partition \"{}\" with nodes; sinfo lists them", partition));
}

std::optional<int> ParseExitCode(const std::string& text) {
  constexpr std::string_view kName = " ExitCode=";
  const size_t at = text.find(kName);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view rest = std::string_view(text).substr(at + kName.size());
  const size_t colon = rest.find(':');
  const auto code = Leading(rest);
  if (!code || *code > 255 || colon == std::string_view::npos) return std::nullopt;
  const auto signal = Leading(rest.substr(colon + 1));
  if (!signal || *signal > 127) return std::nullopt;
  return static_cast<int>(*signal > 0 ? 128 + *signal : *code);
}

std::optional<uint64_t> ParseSubmitted(const std::string& text) {
  const auto id = Whole(std::string_view(text).substr(0, text.find_first_of(";\n")));
  return id && *id > 0 ? id : std::nullopt;
}

}  // namespace trireme::slurm
