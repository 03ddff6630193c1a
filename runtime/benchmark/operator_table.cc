#include "runtime/benchmark/operator_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/benchmark/subject.h"
#include "runtime/json/json_text.h"

namespace trireme::benchmark {
namespace {
using tensor::DType;

constexpr int64_t kShortTokens = 256, kLongTokens = 1024, kRows = 1024;
constexpr std::chrono::milliseconds kLimitAge(500);
constexpr double kLongSeconds = 0.1;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool IsAttention(const OperatorLine& line) {
  return line.kind == LineKind::kOperator && line.spec.kind == graph::OpKind::kAttention;
}

// Attention twice, once for each length; the tokens are in its name.
std::vector<OperatorLine> LinesOf(DType dtype, const std::string& only) {
  std::vector<OperatorLine> lines;
  for (const int64_t tokens : {kShortTokens, kLongTokens}) {
    for (OperatorLine& line :
         LinesOfGpt2({.dtype = dtype, .batch = kRows / tokens, .tokens = tokens})) {
      if (line.per_step == 0 || (!IsAttention(line) && tokens != kShortTokens)) continue;
      if (IsAttention(line)) {
        const size_t phase = line.name.rfind(' ');
        line.name.insert(phase, fmt::format(" T={}", tokens));
      }
      if (line.name.find(only) != std::string::npos) lines.push_back(std::move(line));
    }
  }
  return lines;
}

// Of a step whose samples have `tokens` tokens.
struct StepSum {
  double seconds = 0, least_seconds = 0;
};
StepSum SumOf(const OperatorTable::Group& group, int64_t tokens) {
  StepSum sum;
  for (const Measured& row : group.rows) {
    if (IsAttention(row.line) && row.line.spec.tokens != tokens) continue;
    sum.seconds += row.line.per_step * row.seconds;
    sum.least_seconds += row.line.per_step * row.LeastSeconds();
  }
  return sum;
}

// 12.3, or 1,234 of large numbers.
std::string Number(double value) {
  const int64_t whole = std::llround(value);
  return whole < 1000 ? fmt::format("{:.1f}", value)
                      : fmt::format("{},{:03}", whole / 1000, whole % 1000);
}

std::string HeadOf(const OperatorTable& table) {
  std::string text =
      fmt::format("GPT-2 124M, {} rows: 4 samples of 256 tokens, or one of 1,024; {} thread{}\n",
                  Number(kRows), table.threads, table.threads == 1 ? "" : "s");
  // What no operator of the table was compared with was not measured.
  const char* before = "limits: ";
  if (table.memory_rate > 0) {
    text += fmt::format("{}memory {} GB/s (triad)\n", before, Number(table.memory_rate * 1e-9));
    before = "        ";
  }
  for (const OperatorTable::Group& group : table.groups) {
    if (group.product_rate == 0) continue;
    text += fmt::format("{}{} product {} GFLOP/s (square", before, tensor::NameOf(group.dtype),
                        Number(group.product_rate * 1e-9));
    before = "        ";
    if (group.packed_product_rate > 0) {
      text += fmt::format("; {} with factors in oneDNN's own layout",
                          Number(group.packed_product_rate * 1e-9));
    }
    text += ")\n";
  }
  return text;
}

nlohmann::json GroupJson(const OperatorTable::Group& group, bool whole) {
  nlohmann::json json = {{"dtype", tensor::NameOf(group.dtype)}};
  if (group.product_rate > 0) json["product_gflops"] = group.product_rate * 1e-9;
  if (group.packed_product_rate > 0) {
    json["packed_product_gflops"] = group.packed_product_rate * 1e-9;
  }
  for (const Measured& row : group.rows) {
    json["operators"].push_back({{"name", row.line.name},
                                 {"ms", row.seconds * 1e3},
                                 {"rate", row.rate * 1e-9},
                                 {"unit", row.line.flops > 0 ? "GFLOP/s" : "GB/s"},
                                 {"limit", row.limit * 1e-9},
                                 {"ratio", row.ratio()},
                                 {"per_step", row.line.per_step}});
  }
  if (!whole) return json;
  for (const int64_t tokens : {kShortTokens, kLongTokens}) {
    const StepSum sum = SumOf(group, tokens);
    json["steps"].push_back({{"tokens", tokens},
                             {"ms", sum.seconds * 1e3},
                             {"roofline_ms", sum.least_seconds * 1e3},
                             {"ratio", sum.least_seconds / sum.seconds}});
  }
  return json;
}

}  // namespace

absl::StatusOr<Measured> Measure(const OperatorLine& line, Limits& limits, const Effort& effort) {
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const auto subject, MakeSubject(line, limits.threads()));
  Measured result;
  result.line = line;
  result.seconds = std::numeric_limits<double>::infinity();
  const bool product = line.flops > 0;
  int runs = 0;
  const auto run = [&] {
    result.seconds = std::min(result.seconds, limits.stopwatch().Seconds([&] { subject->Run(); }));
    ++runs;
  };
  const auto late = [&] { return effort.seconds > 0 && SecondsSince(start) >= effort.seconds; };
  const auto look_at_limit = [&] {
    result.limit =
        std::max(result.limit, product ? limits.RecentProductRate(line.spec.dtype, effort.limit_age)
                                       : limits.RecentMemoryRate(effort.limit_age));
  };
  // Of what takes long the first run is as good as another.
  const auto enough = [&] { return runs > 1 || (runs == 1 && result.seconds >= kLongSeconds); };
  run();
  for (int round = 0; effort.repeats == 0 || round < effort.repeats; ++round) {
    // Limits hold for a while.
    if (round % 3 == 0) look_at_limit();
    for (int k = 0; k < 3 && !(enough() && late()); ++k) run();
    if (late()) break;
  }
  look_at_limit();
  result.rate = (product ? line.flops : line.bytes) / result.seconds;
  return result;
}

absl::StatusOr<OperatorTable> MeasureGpt2(const TableOptions& options, Limits& limits,
                                          const Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  OperatorTable table;
  table.threads = limits.threads();
  table.whole = options.only.empty();
  std::vector<std::vector<OperatorLine>> lines;
  size_t count = 0, index = 0;
  for (const DType dtype : options.dtypes) {
    lines.push_back(LinesOf(dtype, options.only));
    count += lines.back().size();
  }
  if (count == 0) {
    return absl::InvalidArgumentError(
        fmt::format("no operator has \"{}\" in its name, as \"qkv\", \"attention T=1024 F\" or "
                    "\"AdamW\" would",
                    options.only));
  }
  for (const std::vector<OperatorLine>& group_lines : lines) {
    OperatorTable::Group group;
    group.dtype = group_lines.front().spec.dtype;
    group.packed_product_rate = limits.PackedProductRate(group.dtype);
    for (const OperatorLine& line : group_lines) {
      progress(index, count, fmt::format("{} {}", tensor::NameOf(group.dtype), line.name));
      // What one line takes longer, the others take less.
      const double left = options.seconds - SecondsSince(start);
      const double share = std::max(1e-3, left / static_cast<double>(count - index++));
      ASSIGN_OR_RETURN(
          const Measured row,
          Measure(line, limits, {.repeats = 0, .seconds = share, .limit_age = kLimitAge}));
      double& best = line.flops > 0 ? group.product_rate : table.memory_rate;
      best = std::max(best, row.limit);
      group.rows.push_back(row);
    }
    table.groups.push_back(std::move(group));
  }
  return table;
}

std::string TextOf(const OperatorTable& table) {
  std::string text = HeadOf(table) + fmt::format("\n{:<22}", "");
  for (const OperatorTable::Group& group : table.groups) {
    text += fmt::format("{:>9} ms {:>15} {:>9}", tensor::NameOf(group.dtype), "rate", "of limit");
  }
  text += "\n";
  for (size_t i = 0; i < table.groups.front().rows.size(); ++i) {
    text += fmt::format("{:<22}", table.groups.front().rows[i].line.name);
    for (const OperatorTable::Group& group : table.groups) {
      const Measured& row = group.rows[i];
      text +=
          fmt::format("{:>12.3f} {:>7} {:<7} {:>9.2f}", row.seconds * 1e3, Number(row.rate * 1e-9),
                      row.line.flops > 0 ? "GFLOP/s" : "GB/s", row.ratio());
    }
    text += "\n";
  }
  for (const int64_t tokens : {kShortTokens, kLongTokens}) {
    if (!table.whole) break;
    text += fmt::format("{:<22}", fmt::format("a step, T={}", tokens));
    for (const OperatorTable::Group& group : table.groups) {
      const StepSum sum = SumOf(group, tokens);
      text += fmt::format("{:>12.0f} {:>7} {:<7} {:>9.2f}", sum.seconds * 1e3,
                          Number(kRows / sum.seconds), "token/s", sum.least_seconds / sum.seconds);
    }
    text += "\n";
  }
  text +=
      "F forward, I input-grad, W weight-grad; a step: the operators times their number in a step\n"
      "of 1,024 tokens, one after another. of limit: flops to the square product's, bytes (each\n"
      "operand once) to the triad's; operands that a cache holds can go beyond it.\n";
  text += fmt::format("measured in {:.1f} s\n", table.seconds);
  constexpr double kQuiet = 0.05;
  if (table.other_load > kQuiet) {
    text += fmt::format(
        "Other programs took {:.0f} % of the processors meanwhile: measure again when they rest.\n",
        table.other_load * 100);
  }
  return text;
}

std::string JsonOf(const OperatorTable& table) {
  nlohmann::json json = {{"bench", "operators"},
                         {"threads", table.threads},
                         {"seconds", table.seconds},
                         {"other_load", table.other_load}};
  if (table.memory_rate > 0) json["memory_gbytes_per_second"] = table.memory_rate * 1e-9;
  for (const OperatorTable::Group& group : table.groups) {
    json["groups"].push_back(GroupJson(group, table.whole));
  }
  return json_text::Write(json);
}

}  // namespace trireme::benchmark
