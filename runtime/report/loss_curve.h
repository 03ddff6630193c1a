// The loss over the steps, read from metrics.jsonl, as an SVG picture and as a picture in the
// terminal.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trireme::report {

struct CurvePoint {
  double step = 0;
  double value = 0;  // nats per token
  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};

struct LossHistory {
  std::vector<CurvePoint> training = {};
  std::vector<CurvePoint> validation = {};
};

// Lines {"step":N,"loss":x,...} and {"step":N,"validation_loss":x}; other fields are ignored, and
// so is a loss of null (a step that was not finite) and a last line without its end (a crash while
// it was written). InvalidArgument naming the line for anything else that is not a JSON object with
// a step.
absl::StatusOr<LossHistory> ParseMetrics(const std::string& jsonl);

struct CurveOptions {
  int width = 80;       // columns, at least 30
  int height = 16;      // lines, at least 4
  bool unicode = true;  // braille dots; otherwise ASCII
  bool color = false;
};
// Training as a line, validation as larger marks. Ends with a newline; says so if there is nothing
// to show.
std::string LossCurveText(const LossHistory& history, const CurveOptions& options);

// Raw training loss faint, its running mean (over a fiftieth of the points) strong, validation with
// marks. Classes as in schedule_svg.h.
std::string LossCurveSvg(const LossHistory& history);

// Round numbers that divide [low, high] into about `count` parts, within it.
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace trireme::report
