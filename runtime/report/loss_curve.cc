// Reading of metrics.jsonl and the terminal's curve; the SVG is in loss_curve_svg.cc.
#include "runtime/report/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/json/json_text.h"

namespace trireme::report {

absl::StatusOr<LossHistory> ParseMetrics(const std::string& jsonl) {
  LossHistory history;
  size_t begin = 0;
  for (int number = 1; begin < jsonl.size(); ++number) {
    const size_t end = jsonl.find('\n', begin);
    const bool whole = end != std::string::npos;
    const std::string line = jsonl.substr(begin, whole ? end - begin : std::string::npos);
    begin = whole ? end + 1 : jsonl.size();
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto json = json_text::Parse(line);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number()) {
      if (!whole) continue;
      return absl::InvalidArgumentError(fmt::format(
          "metrics.jsonl line {}: expected a JSON object with a number \"step\", got: {}", number,
          line.substr(0, 60)));
    }
    const double step = json["step"].get<double>();
    const auto take = [&](const char* field, std::vector<CurvePoint>& points) {
      if (!json.contains(field) || !json[field].is_number()) return;
      const double value = json[field].get<double>();
      if (std::isfinite(value)) points.push_back({step, value});
    };
    take("loss", history.training);
    take("validation_loss", history.validation);
  }
  return history;
}

std::vector<double> RoundTicks(double low, double high, int count) {
  std::vector<double> ticks;
  if (!(high > low) || count < 1) return {low};
  const double raw = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double tick = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= raw) {
      tick = factor * power;
      break;
    }
  }
  for (double index = std::ceil(low / tick - 1e-9); index * tick <= high + 1e-9 * tick; ++index) {
    ticks.push_back(index * tick);
  }
  return ticks;
}

namespace {

// Braille cells of 2 x 4 dots, or one dot per ASCII column.
class Canvas {
 public:
  Canvas(int columns, int lines, bool unicode)
      : columns_(columns),
        lines_(lines),
        across_(unicode ? 2 : 1),
        down_(unicode ? 4 : 1),
        dots_(static_cast<size_t>(columns * across_ * lines * down_)),
        marks_(static_cast<size_t>(columns * lines)) {}

  int width() const { return columns_ * across_; }
  int height() const { return lines_ * down_; }
  void Dot(int x, int y) { dots_[Cell(y, x, width())] = true; }
  void Mark(int x, int y) { marks_[Cell(y / down_, x / across_, columns_)] = true; }

  std::string Line(int line, bool color) const {
    std::string text;
    for (int column = 0; column < columns_; ++column) {
      if (marks_[Cell(line, column, columns_)]) {
        const std::string mark = down_ == 1 ? "o" : "●";
        text += color ? "\x1b[38;5;208m" + mark + "\x1b[0m" : mark;
        continue;
      }
      const unsigned bits = Bits(line, column);
      if (bits == 0) {
        text += ' ';
      } else {
        const std::string dots = down_ == 1 ? "*" : Braille(bits);
        text += color ? "\x1b[38;5;33m" + dots + "\x1b[0m" : dots;
      }
    }
    return text;
  }

 private:
  static size_t Cell(int row, int column, int columns) {
    return static_cast<size_t>(row) * static_cast<size_t>(columns) + static_cast<size_t>(column);
  }

  unsigned Bits(int line, int column) const {
    // Unicode 0x2800: dots 1 2 3 7 down the left, 4 5 6 8 down the right.
    static constexpr unsigned kBit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned bits = 0;
    for (int y = 0; y < down_; ++y) {
      for (int x = 0; x < across_; ++x) {
        if (dots_[Cell(line * down_ + y, column * across_ + x, width())]) bits |= kBit[y][x];
      }
    }
    return bits;
  }

  static std::string Braille(unsigned bits) {
    return {static_cast<char>(0xE2), static_cast<char>(0xA0 | (bits >> 6)),
            static_cast<char>(0x80 | (bits & 0x3F))};
  }

  int columns_, lines_, across_, down_;
  std::vector<bool> dots_, marks_;
};

struct Range {
  double first_step = 0, last_step = 1, low = 0, high = 1;
};

Range RangeOf(const LossHistory& history) {
  Range range{.first_step = INFINITY, .last_step = -INFINITY, .low = INFINITY, .high = -INFINITY};
  for (const auto* points : {&history.training, &history.validation}) {
    for (const CurvePoint& point : *points) {
      range.first_step = std::min(range.first_step, point.step);
      range.last_step = std::max(range.last_step, point.step);
      range.low = std::min(range.low, point.value);
      range.high = std::max(range.high, point.value);
    }
  }
  if (range.last_step <= range.first_step) range.last_step = range.first_step + 1;
  if (range.high <= range.low) range.high = range.low + 1e-3 * std::max(1.0, std::fabs(range.low));
  return range;
}

// Columns of dots get the mean of the points that fall on them, joined from column to column.
void DrawTraining(const LossHistory& history, const Range& range, Canvas& canvas) {
  const size_t width = static_cast<size_t>(canvas.width());
  std::vector<double> sum(width, 0);
  std::vector<int> count(width, 0);
  for (const CurvePoint& point : history.training) {
    const double along = (point.step - range.first_step) / (range.last_step - range.first_step);
    const auto x = static_cast<size_t>(std::lround(along * static_cast<double>(width - 1)));
    sum[x] += point.value;
    ++count[x];
  }
  int last_x = -1;
  int last_y = 0;
  for (int x = 0; x < canvas.width(); ++x) {
    const size_t at = static_cast<size_t>(x);
    if (count[at] == 0) continue;
    const double up = (sum[at] / count[at] - range.low) / (range.high - range.low);
    const int y = static_cast<int>(std::lround((1 - up) * (canvas.height() - 1)));
    const int from = last_x < 0 ? x : last_x + 1;
    int previous = last_x < 0 ? y : last_y;
    for (int between = from; between <= x; ++between) {
      const double share = x == last_x ? 1 : static_cast<double>(between - last_x) / (x - last_x);
      const int next =
          last_x < 0 ? y : static_cast<int>(std::lround(last_y + share * (y - last_y)));
      const int step = next > previous ? 1 : -1;
      for (int dot = previous == next ? next : previous + step; dot != next; dot += step)
        canvas.Dot(between, dot);
      canvas.Dot(between, next);
      previous = next;
    }
    last_x = x;
    last_y = y;
  }
}

}  // namespace

std::string LossCurveText(const LossHistory& history, const CurveOptions& options) {
  if (history.training.empty() && history.validation.empty()) return "no losses to show yet\n";
  constexpr int kLabel = 8;
  const int columns = std::max(options.width, 30) - kLabel - 2;
  const int lines = std::max(options.height, 4);
  const Range range = RangeOf(history);
  Canvas canvas(columns, lines, options.unicode);
  DrawTraining(history, range, canvas);
  for (const CurvePoint& point : history.validation) {
    const double along = (point.step - range.first_step) / (range.last_step - range.first_step);
    const double up = (point.value - range.low) / (range.high - range.low);
    canvas.Mark(static_cast<int>(std::lround(along * (canvas.width() - 1))),
                static_cast<int>(std::lround((1 - up) * (canvas.height() - 1))));
  }
  const std::string bar = options.unicode ? "│" : "|";
  std::string text;
  for (int line = 0; line < lines; ++line) {
    const double value = range.high - (range.high - range.low) * line / (lines - 1);
    const bool labelled = line % 3 == 0 || line + 1 == lines;
    text += fmt::format("{:>{}} {}{}\n", labelled ? fmt::format("{:.3f}", value) : "", kLabel, bar,
                        canvas.Line(line, options.color));
  }
  std::string rule;
  for (int column = 0; column < columns; ++column) rule += options.unicode ? "─" : "-";
  text += fmt::format("{:>{}} {}{}\n", "", kLabel, options.unicode ? "└" : "+", rule);
  const std::string last = fmt::format("step {:.0f}", range.last_step);
  text += fmt::format("{:>{}}  {:<{}}{}\n", "", kLabel, fmt::format("{:.0f}", range.first_step),
                      std::max(1, columns - static_cast<int>(last.size())), last);
  if (!history.training.empty()) {
    text += fmt::format("{:>{}}  training {:.4f}", "", kLabel, history.training.back().value);
  }
  if (!history.validation.empty()) {
    text += fmt::format("{}{} validation {:.4f}", history.training.empty() ? "          " : ", ",
                        options.unicode ? "●" : "o", history.validation.back().value);
  }
  return text + '\n';
}

}  // namespace trireme::report
