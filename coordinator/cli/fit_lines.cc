#include "coordinator/cli/fit_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
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
          {"optimizer", "optimizer", bytes.optimizer},
          {"activations", "activations", bytes.activations},
          {"other", "other", bytes.total - named},
          {"host", "host", bytes.host},
          {"total", "total", bytes.total + bytes.host}};
}

// "zero_stage=1": within a table the section says nothing new.
std::string Short(const FieldChange& change) {
  return change.path.substr(change.path.rfind('.') + 1) + "=" + change.value;
}

std::vector<Cell> ByteCells(const FitChoice& choice) {
  std::vector<Cell> cells;
  for (const Part& part : PartsOf(choice)) {
    cells.push_back({part.bytes == 0 ? "-" : ReadableBytes(part.bytes), "", ""});
  }
  return cells;
}

std::vector<std::string> Headings(const std::vector<std::string>& more) {
  std::vector<std::string> headings;
  for (const Part& part : PartsOf({})) headings.emplace_back(part.heading);
  headings.insert(headings.end(), more.begin(), more.end());
  return headings;
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

std::string Slower(const FitChoice& choice) {
  // Rounded to a whole number of no sign: what is a little faster is not "~-0 %".
  return choice.changes.empty() ? "-" : fmt::format("~{} %", std::lround(100 * choice.slowdown));
}

// A combination has a line for each of its changes.
void AddChoice(const FitChoice& choice, bool fits, TextTable& table) {
  std::vector<Cell> cells = ByteCells(choice);
  const size_t width = cells.size() + 3;
  cells.push_back({Slower(choice), "", ""});
  cells.push_back({fits ? "yes" : "no", "", ""});
  cells.push_back({choice.changes.empty() ? "as it is" : Short(choice.changes[0]), "", ""});
  table.Add(std::move(cells));
  for (size_t i = 1; i < choice.changes.size(); ++i) {
    std::vector<Cell> more(width);
    more.back().text = "+ " + Short(choice.changes[i]);
    table.Add(std::move(more));
  }
}

// Of combinations only the answer.
std::string FitTable(const FitReport& fit, const FitLimit& limit) {
  TextTable table(Headings({"slower", "fits", "choice"}), {0, 1, 2, 3, 4, 5, 6, 7});
  const size_t answer = fit.fitting.value_or(fit.closest);
  for (size_t i = 0; i < fit.choices.size(); ++i) {
    const FitChoice& choice = fit.choices[i];
    if (choice.changes.size() > 1 && i != answer) continue;
    AddChoice(choice, limit.MissedBy(choice) == 0, table);
  }
  return Indented(table.Text(0));
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
  TextTable table(Headings({"choice"}), {0, 1, 2, 3, 4, 5, 6});
  for (const FitChoice& choice : choices) {
    std::vector<Cell> cells = ByteCells(choice);
    cells.push_back({Short(choice.changes[0]) + (choice.is_job ? " (the job's)" : ""), "", ""});
    table.Add(std::move(cells));
  }
  return "\nbytes per choice, largest rank\n" + Indented(table.Text(0));
}

std::string FitLines(const FitReport& fit, const FitLimit& limit) {
  std::string text = "bytes per choice, largest rank\n" + FitTable(fit, limit);
  text += "slower: about how much, to compare the choices";
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
