#include "coordinator/cli/fit_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/cli/json_line.h"
#include "coordinator/cli/text_table.h"
#include "runtime/base/text.h"
#include "runtime/report/plan_view.h"

namespace trireme::cli {
namespace {

using nlohmann::ordered_json;
using plan::FieldChange, plan::FitChoice, plan::FitLimit, plan::FitReport;
using report::ReadableBytes;

// The kinds of memory that the tables tell apart.
struct Part {
  const char* heading;
  const char* name;
  uint64_t bytes;
};

std::vector<Part> PartsOf(const FitChoice& choice) {
  const report::StageBytes bytes = report::BytesOf(choice.largest);
  const uint64_t named = bytes.parameters + bytes.gradients + bytes.optimizer + bytes.activations;
  return {{"params", "parameters", bytes.parameters},
          {"grads", "gradients", bytes.gradients},
          {"optim", "optimizer", bytes.optimizer},
          {"activ", "activations", bytes.activations},
          {"other", "other", bytes.total - named},
          {"host", "host", bytes.host},
          {"snaps", "snapshots", bytes.snapshots},
          {"total", "total", bytes.total + bytes.host + bytes.snapshots},
          {"file", "file", bytes.file}};
}

// "zero_stage=1": within a table the section says nothing new.
std::string Short(const FieldChange& change) {
  return change.path.substr(change.path.rfind('.') + 1) + "=" + change.value;
}

// The kinds that any of some choices has, by their index in PartsOf.
std::vector<size_t> PartsIn(const std::vector<FitChoice>& choices) {
  std::vector<size_t> found;
  for (size_t i = 0; i < PartsOf({}).size(); ++i) {
    if (std::any_of(choices.begin(), choices.end(),
                    [&](const FitChoice& choice) { return PartsOf(choice)[i].bytes > 0; })) {
      found.push_back(i);
    }
  }
  return found;
}

// Of the sizes in a table, so that the largest has five digits at most.
struct Unit {
  const char* name;
  double bytes;
};

Unit UnitFor(const std::vector<FitChoice>& choices) {
  uint64_t most = 0;
  for (const FitChoice& choice : choices) {
    for (const Part& part : PartsOf(choice)) most = std::max(most, part.bytes);
  }
  constexpr Unit kUnits[] = {{"bytes", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
  constexpr double kMost = 99'999;
  return *std::find_if(std::begin(kUnits), std::end(kUnits) - 1, [&](const Unit& unit) {
    return static_cast<double>(most) <= kMost * unit.bytes;
  });
}

std::string Indented(const std::string& lines) {
  std::string text;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at) + 1;
    text += "  " + lines.substr(at, end - at);
    at = end;
  }
  return text;
}

// A column for each kind of memory that any of some choices has, then `more`, of which the first
// ones are numbers too. With rows of 80 columns.
class ByteTable {
 public:
  ByteTable(const std::vector<FitChoice>& choices, const std::vector<std::string>& more,
            size_t more_numbers)
      : parts_(PartsIn(choices)), unit_(UnitFor(choices)), table_(Make(more, more_numbers)) {
    table_.Gap(1);
  }

  void Add(const FitChoice& choice, const std::vector<std::string>& more) {
    std::vector<Cell> cells;
    for (const size_t part : parts_) cells.push_back({Size(PartsOf(choice)[part].bytes), "", ""});
    for (const std::string& text : more) cells.push_back({text, "", ""});
    table_.Add(std::move(cells));
  }

  // Of the row before; in the last column.
  void Continue(const std::string& last, size_t more) {
    std::vector<Cell> cells(parts_.size() + more);
    cells.back().text = last;
    table_.Add(std::move(cells));
  }

  std::string Text() const {
    return base::Text("bytes per choice, largest rank, in ", unit_.name, "\n",
                      Indented(table_.Text(0)));
  }

 private:
  TextTable Make(const std::vector<std::string>& more, size_t more_numbers) const {
    std::vector<std::string> headings;
    for (const size_t part : parts_) headings.emplace_back(PartsOf({})[part].heading);
    std::vector<size_t> numbers(parts_.size() + more_numbers);
    std::iota(numbers.begin(), numbers.end(), 0);
    headings.insert(headings.end(), more.begin(), more.end());
    return TextTable(std::move(headings), std::move(numbers));
  }

  std::string Size(uint64_t bytes) const {
    if (bytes == 0) return "-";
    const double size = static_cast<double>(bytes) / unit_.bytes;
    return fmt::format("{:.{}f}", size, size >= 100 || unit_.bytes == 1 ? 0 : size >= 10 ? 1 : 2);
  }

  const std::vector<size_t> parts_;
  const Unit unit_;
  TextTable table_;
};

std::string Slower(const FitChoice& choice) {
  // Rounded to a whole number of no sign: what is a little faster is not "~-0 %".
  return choice.changes.empty() ? "-" : fmt::format("~{} %", std::lround(100 * choice.slowdown));
}

// Of combinations only the answer, with a line for each of its changes.
std::string FitTable(const FitReport& fit, const FitLimit& limit) {
  const std::vector<std::string> more = {"slower", "fits", "choice"};
  ByteTable table(fit.choices, more, /*more_numbers=*/1);
  const size_t answer = fit.fitting.value_or(fit.closest);
  for (size_t i = 0; i < fit.choices.size(); ++i) {
    const FitChoice& choice = fit.choices[i];
    if (choice.changes.size() > 1 && i != answer) continue;
    table.Add(choice, {Slower(choice), limit.MissedBy(choice) == 0 ? "yes" : "no",
                       choice.changes.empty() ? "as it is" : Short(choice.changes[0])});
    for (size_t change = 1; change < choice.changes.size(); ++change) {
      table.Continue("+ " + Short(choice.changes[change]), more.size());
    }
  }
  return table.Text();
}

std::string Answer(const FitReport& fit, const FitLimit& limit) {
  const FitChoice& choice = fit.choices[fit.fitting.value_or(fit.closest)];
  const std::string room = ReadableBytes(limit.rank_bytes) + " a rank";
  if (!fit.fitting.has_value()) {
    const uint64_t missed = limit.MissedBy(choice);
    return base::Text(
        "nothing fits ", room, ": ", choice.changes.empty() ? "the job as it is" : "the best",
        " misses it by ", report::ReadableCount(missed), " bytes (", ReadableBytes(missed), ")\n",
        "use more ranks (pipeline_parallel_size, tensor_parallel_size), or a shorter ",
        "data.sequence_length\n");
  }
  if (choice.changes.empty()) return base::Text("fits ", room, " as it is\n");
  return base::Text("the smallest change that fits ", room, ":\n  ", AsOptions(choice.changes),
                    "\n");
}

ordered_json ToJson(const FitChoice& choice, const FitChoice& today, const FitLimit& limit) {
  ordered_json changes = ordered_json::object();
  for (const FieldChange& change : choice.changes) changes[change.path] = change.value;
  ordered_json bytes = ordered_json::object();
  ordered_json shrinks = ordered_json::array();
  const std::vector<Part> parts = PartsOf(choice), before = PartsOf(today);
  for (size_t i = 0; i < parts.size(); ++i) {
    bytes[parts[i].name] = parts[i].bytes;
    if (parts[i].bytes < before[i].bytes) shrinks.push_back(parts[i].name);
  }
  return {{"set", changes},
          {"bytes", bytes},
          {"shrinks", shrinks},
          {"all_ranks_bytes", choice.all_ranks_bytes},
          {"slowdown", choice.slowdown},
          {"other_numerics", choice.other_numerics},
          {"fits", limit.MissedBy(choice) == 0}};
}

}  // namespace

std::string ChoiceLines(const v1::Plan& plan) {
  const std::vector<FitChoice> choices = plan::BytesPerChoice(plan);
  if (choices.empty()) return "";
  ByteTable table(choices, {"choice"}, /*more_numbers=*/0);
  for (const FitChoice& choice : choices) {
    table.Add(choice, {Short(choice.changes[0]) + (choice.is_job ? " (job's)" : "")});
  }
  return "\n" + table.Text();
}

std::string FitLines(const FitReport& fit, const FitLimit& limit) {
  std::string text = FitTable(fit, limit);
  text += "slower: roughly, to compare choices";
  const bool numerics = std::any_of(fit.choices.begin(), fit.choices.end(),
                                    [](const FitChoice& each) { return each.other_numerics; });
  text += numerics ? "; bf16 gives other numbers, and comes last\n\n" : "\n\n";
  text += Answer(fit, limit);
  if (fit.not_planned > 0) {
    text += fmt::format("{} would take too long to plan and {} not been tried\n",
                        base::Counted(fit.not_planned, "other combination"),
                        fit.not_planned == 1 ? "has" : "have");
  }
  return text;
}

void PrintFitAsJson(const FitReport& fit, const FitLimit& limit) {
  const FitChoice& today = fit.choices[0];
  ordered_json choices = ordered_json::array();
  for (const FitChoice& choice : fit.choices) choices.push_back(ToJson(choice, today, limit));
  const bool fits = fit.fitting.has_value();
  const FitChoice& best = fit.choices[fit.fitting.value_or(fit.closest)];
  const ordered_json answer = ToJson(best, today, limit);
  PrintJsonObject({{"limit_bytes", limit.rank_bytes},
                   {"fits", fits},
                   {"smallest_change", fits ? answer : ordered_json()},
                   {"options", fits ? AsOptions(best.changes) : ""},
                   {"closest", fits ? ordered_json() : answer},
                   {"missed_by_bytes", limit.MissedBy(best)},
                   {"choices", choices},
                   {"not_planned", fit.not_planned}});
}

}  // namespace trireme::cli
