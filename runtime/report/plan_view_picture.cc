// Draws a simulated timeline with letters, or with letters on coloured cells.
#include "runtime/report/plan_view_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace trireme::report {
namespace {

struct Paint {
  char letter;
  int background;  // of the 256 colours: even virtual stages
  int odd_background;
};

Paint PaintOf(plan::Compute kind) {
  switch (kind) {
    case plan::Compute::kForward:
      return {'F', 25, 31};
    case plan::Compute::kInputGrad:
      return {'I', 29, 35};
    case plan::Compute::kWeightGrad:
      return {'W', 130, 136};
    case plan::Compute::kBackward:
      return {'B', 29, 35};
  }
  return {'?', 0, 0};
}

std::string Label(const plan::ComputeStep& step) {
  char letter = PaintOf(step.kind).letter;
  if (step.virtual_stage % 2 == 1) letter = static_cast<char>(std::tolower(letter));
  return fmt::format("{}{}", letter, step.micro_batch % 10);
}

// One rank's line: `columns` columns from time 0.
std::string Line(const std::vector<plan::SimulatedStep>& steps, size_t columns,
                 const DescribeOptions& options) {
  const std::string idle = options.unicode ? "·" : ".";
  const std::string held = options.unicode ? "─" : "-";
  std::string text;
  size_t column = 0;
  for (const plan::SimulatedStep& step : steps) {
    const auto begin = static_cast<size_t>(std::lround(2 * step.start));
    const auto end = std::min(columns, static_cast<size_t>(std::lround(2 * step.end)));
    for (; column < std::min(begin, columns); ++column) text += idle;
    if (begin >= columns) break;
    const std::string label = Label(step.compute);
    const Paint paint = PaintOf(step.compute.kind);
    if (options.color) {
      text += fmt::format("\x1b[48;5;{}m\x1b[97m", step.compute.virtual_stage % 2 == 0
                                                       ? paint.background
                                                       : paint.odd_background);
    }
    for (size_t i = 0; column < end; ++column, ++i) {
      if (i < label.size()) {
        text += label[i];
      } else {
        text += options.color ? " " : held;
      }
    }
    if (options.color) text += "\x1b[0m";
  }
  for (; column < columns; ++column) text += idle;
  return text;
}

}  // namespace

std::string SchedulePicture(const PlanTimeline& timeline, const DescribeOptions& options) {
  constexpr uint32_t kMostRows = 16;
  const std::string bar = options.unicode ? "│" : "|";
  const size_t label = 6 + std::to_string(timeline.shape.ranks - 1).size();
  const size_t width = static_cast<size_t>(std::max(options.width, 60));
  const auto needed = static_cast<size_t>(std::lround(2 * timeline.simulation.makespan));
  const size_t room = width - label - 3;
  const bool cut = needed > room;
  const size_t columns = cut ? (room - 3) / 2 * 2 : needed;
  const bool split =
      std::any_of(timeline.simulation.timeline[0].begin(), timeline.simulation.timeline[0].end(),
                  [](const auto& step) { return step.compute.kind == plan::Compute::kWeightGrad; });
  std::string text =
      fmt::format("schedule: {}, {} idle; a digit is the micro-batch{}\n",
                  split ? "F forward, I input-grad, W weight-grad" : "F forward, B backward",
                  options.unicode ? "·" : ".",
                  timeline.shape.virtual_stages > 1 ? ", lower case: odd virtual stages" : "");
  for (const int rank : RowsShown(timeline.shape.ranks, kMostRows)) {
    if (rank < 0) {
      text += fmt::format("{:>{}} {} {} stages between\n", "...", label, bar,
                          timeline.shape.ranks - kMostRows);
      continue;
    }
    text +=
        fmt::format("{:<{}} {} {}{}\n", fmt::format("stage {}", rank), label, bar,
                    Line(timeline.simulation.timeline[static_cast<size_t>(rank)], columns, options),
                    cut ? "..." : "");
  }
  return text;
}

}  // namespace trireme::report
