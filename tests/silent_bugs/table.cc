#include "tests/silent_bugs/table.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace trireme::silent_bugs {

namespace {

constexpr const char* kSummaryBegins = "Planted: ";
constexpr const char* kRule = "|---|";  // the line above the rows

// The number of a row of the table, or 0.
int NumberOf(const std::string& line) {
  int number = 0;
  return std::sscanf(line.c_str(), "| %d |", &number) == 1 ? number : 0;
}

std::string Told(const Curve& curve) {
  const char* verdict = curve.shows() ? "yes" : "no";
  if (!std::isfinite(curve.apart)) return absl::StrCat(verdict, ", it ends");
  const auto percent = [](double part) {
    return part < 0.1 ? absl::StrFormat("%.2g %%", 100 * part)
                      : absl::StrFormat("%.0f %%", 100 * part);
  };
  return absl::StrCat(verdict, ", ", percent(curve.apart), " of ", percent(curve.seeds));
}

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return absl::StrSplit(text.str(), '\n');
}

}  // namespace

std::string Row::Line() const {
  return absl::StrCat(text, " ", curve ? Told(*curve) : std::string("-"), " |");
}

Row RowOf(const Kind& kind, const Looked& looked) {
  std::vector<std::string> seen;
  for (const Seen& each : looked.seen) {
    seen.push_back(
        absl::StrCat(each.by, " ", each.when, each.names.empty() ? "" : ": ", each.names));
  }
  const std::string planted =
      kind.needs.empty() ? kind.planted : absl::StrCat("needs ", kind.needs);
  return {.number = kind.number,
          .planted = kind.needs.empty(),
          .by_product = std::any_of(looked.seen.begin(), looked.seen.end(), IsOfProduct),
          .text = absl::StrCat(
              "| ",
              absl::StrJoin({absl::StrCat(kind.number), kind.family, kind.bug, kind.source, planted,
                             seen.empty() ? std::string("-") : absl::StrJoin(seen, "; ")},
                            " | "),
              " |")};
}

std::string Summary(const std::vector<Row>& rows) {
  const auto count = [&](const auto& of) { return std::count_if(rows.begin(), rows.end(), of); };
  const auto planted = count([](const Row& row) { return row.planted; });
  const auto by_product = count([](const Row& row) { return row.by_product; });
  const auto shown = count([](const Row& row) { return row.curve && row.curve->shows(); });
  const auto seen = count([](const Row& row) { return row.seen; });
  std::string text =
      absl::StrCat(kSummaryBegins, planted, " of ", rows.size(), " kinds. Seen: ", seen,
                   ", by the product itself ", by_product, ".");
  if (count([](const Row& row) { return row.false_alarm.has_value(); }) == planted) {
    absl::StrAppend(&text, " False alarms of their healthy twins: ",
                    count([](const Row& row) { return row.false_alarm.value_or(false); }), ".");
  }
  if (count([](const Row& row) { return row.curve.has_value(); }) == planted) {
    absl::StrAppend(&text, " Shown by 200 steps of loss: ", shown, ".");
  }
  return text;
}

std::string DifferencesOf(const std::string& path, const std::vector<Row>& rows) {
  std::map<int, std::string> page;
  std::string summary, faults;
  for (const std::string& line : LinesOf(path)) {
    if (const int number = NumberOf(line); number > 0) page[number] = line;
    if (absl::StartsWith(line, kSummaryBegins)) summary = line;
  }
  for (const Row& row : rows) {
    const std::string line = row.Line();
    const bool measured = row.curve.has_value();
    // "yes" or "no" alone.
    const std::string compared = measured      ? line.substr(0, row.text.size() + 3)
                                 : row.planted ? row.text
                                               : line;
    if (!absl::StartsWith(page[row.number], compared)) {
      absl::StrAppend(&faults, path, ": kind ", row.number, " is\n  ", page[row.number],
                      "\nmeasured is\n  ", line, "\n");
    }
    page.erase(row.number);
  }
  for (const auto& [number, line] : page) {
    absl::StrAppend(&faults, path, ": kind ", number, " is unknown to the bench\n");
  }
  // What was not looked at comes last.
  if (!absl::StartsWith(summary, Summary(rows))) {
    absl::StrAppend(&faults, path, ": says\n  ", summary, "\nmeasured is\n  ", Summary(rows), "\n");
  }
  return faults;
}

absl::Status Rewrite(const std::string& path, const std::vector<Row>& rows) {
  std::vector<std::string> lines;
  for (const std::string& line : LinesOf(path)) {
    if (NumberOf(line) > 0) continue;
    lines.push_back(absl::StartsWith(line, kSummaryBegins) ? Summary(rows) : line);
    if (!absl::StartsWith(line, kRule)) continue;
    for (const Row& row : rows) lines.push_back(row.Line());
  }
  std::ofstream file(path, std::ios::trunc);
  file << absl::StrJoin(lines, "\n");
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(path, ": not written"));
}

}  // namespace trireme::silent_bugs
