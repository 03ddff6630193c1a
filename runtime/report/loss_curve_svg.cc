// The loss curve as SVG: few colours, labels at the ends of the lines instead of a legend.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/report/loss_curve.h"

namespace trireme::report {
namespace {

constexpr double kWidth = 1100, kHeight = 400;
constexpr double kLeft = 62, kRight = 960, kTop = 24, kBottom = 350;
constexpr size_t kMostPoints = 1500;
constexpr size_t kMostMarks = 200;

// Means of runs of points, so that a long run stays a small file.
std::vector<CurvePoint> Thin(const std::vector<CurvePoint>& points, size_t most) {
  const size_t run = (points.size() + most - 1) / most;
  if (run <= 1) return points;
  std::vector<CurvePoint> thin;
  for (size_t begin = 0; begin < points.size(); begin += run) {
    const size_t end = std::min(points.size(), begin + run);
    CurvePoint mean;
    for (size_t i = begin; i < end; ++i) {
      mean.step += points[i].step / static_cast<double>(end - begin);
      mean.value += points[i].value / static_cast<double>(end - begin);
    }
    thin.push_back(mean);
  }
  return thin;
}

// Centred mean, narrower near the ends, so that it neither lags nor leaves the data.
std::vector<CurvePoint> Smooth(const std::vector<CurvePoint>& points) {
  const size_t half = std::max<size_t>(1, points.size() / 100);
  std::vector<CurvePoint> smooth;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t reach = std::min({half, i, points.size() - 1 - i});
    double sum = 0;
    for (size_t j = i - reach; j <= i + reach; ++j) sum += points[j].value;
    smooth.push_back({points[i].step, sum / static_cast<double>(2 * reach + 1)});
  }
  return smooth;
}

class Chart {
 public:
  explicit Chart(const LossHistory& history)
      : validation_(Thin(history.validation, kMostMarks)),
        raw_(Thin(history.training, kMostPoints)),
        smooth_(Smooth(raw_)) {
    first_ = low_ = INFINITY;
    last_ = high_ = -INFINITY;
    for (const auto* points : {&raw_, &validation_}) {
      for (const CurvePoint& point : *points) {
        first_ = std::min(first_, point.step);
        last_ = std::max(last_, point.step);
        low_ = std::min(low_, point.value);
        high_ = std::max(high_, point.value);
      }
    }
    if (last_ <= first_) last_ = first_ + 1;
    const double margin =
        high_ > low_ ? 0.06 * (high_ - low_) : 0.01 * std::max(1.0, std::fabs(low_));
    low_ -= margin;
    high_ += margin;
  }

  std::string Draw() {
    Open();
    Grid();
    Line(raw_, "tr-raw", "#2d69b2", 1, 0.28);
    Line(smooth_, "tr-train", "#2d69b2", 2.4, 1);
    Line(validation_, "tr-valid", "#d9741a", 1.8, 0.9);
    for (const CurvePoint& point : validation_) {
      text_ += fmt::format(
          "<circle class=\"tr-dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"#d9741a\" "
          "stroke=\"#ffffff\" stroke-width=\"1.5\"/>\n",
          X(point), Y(point), validation_.size() > 40 ? 2.5 : 4.5);
    }
    Labels();
    return text_ + "</svg>\n";
  }

 private:
  double X(const CurvePoint& point) const {
    return kLeft + (kRight - kLeft) * (point.step - first_) / (last_ - first_);
  }
  double Y(const CurvePoint& point) const {
    return kBottom - (kBottom - kTop) * (point.value - low_) / (high_ - low_);
  }

  void Open() {
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
        "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"12\">\n"
        "<title>Loss over the steps</title>\n<rect class=\"tr-paper\" width=\"100%\" "
        "height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n",
        kWidth, kHeight);
  }

  void Grid() {
    const std::vector<double> values = RoundTicks(low_, high_, 9);
    const int digits =
        values.size() > 1
            ? std::max(1, static_cast<int>(-std::floor(std::log10(values[1] - values[0]) + 1e-9)))
            : 2;
    for (const double value : values) {
      const double y = Y({first_, value});
      text_ += fmt::format(
          "<line class=\"tr-grid\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" "
          "stroke=\"#e3e7eb\"/><text class=\"tr-faint\" x=\"{3:.1f}\" y=\"{4:.1f}\" "
          "text-anchor=\"end\" fill=\"#66727f\">{5:.{6}f}</text>\n",
          kLeft, kRight, y, kLeft - 10, y + 4, value, digits);
    }
    for (const double step : RoundTicks(first_, last_, 8)) {
      if (step != std::round(step)) continue;
      text_ += fmt::format(
          "<text class=\"tr-faint\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" "
          "fill=\"#66727f\">{:.0f}</text>\n",
          X({step, low_}), kBottom + 22, step);
    }
    text_ += fmt::format(
        "<line class=\"tr-axis\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" "
        "stroke=\"#9aa5b1\"/><text class=\"tr-faint\" x=\"{1:.1f}\" y=\"{3:.1f}\" "
        "text-anchor=\"end\" fill=\"#66727f\">step</text>\n",
        kLeft, kRight, kBottom, kBottom + 40);
  }

  void Line(const std::vector<CurvePoint>& points, const char* name, const char* color,
            double width, double opacity) {
    if (points.size() < 2) return;
    text_ += fmt::format(
        "<path class=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" opacity=\"{}\" "
        "stroke-linejoin=\"round\" d=\"",
        name, color, width, opacity);
    for (size_t i = 0; i < points.size(); ++i) {
      text_ += fmt::format("{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', X(points[i]), Y(points[i]));
    }
    text_ += "\"/>\n";
  }

  // Beside the last points; pushed apart where they would meet.
  void Labels() {
    double training = smooth_.empty() ? kTop : Y(smooth_.back());
    double validation = validation_.empty() ? kTop : Y(validation_.back());
    if (!smooth_.empty() && !validation_.empty() && std::fabs(training - validation) < 38) {
      const double middle = std::min((training + validation) / 2, kBottom - 22);
      const double side = training < validation ? -19 : 19;
      training = middle + side;
      validation = middle - side;
    }
    if (!smooth_.empty()) Label("training", smooth_.back().value, training, "#2d69b2");
    if (!validation_.empty()) {
      Label("validation", validation_.back().value, validation, "#d9741a");
    }
  }

  void Label(const std::string& name, double value, double y, const char* color) {
    const char* style = name == "training" ? "tr-train-ink" : "tr-valid-ink";
    text_ += fmt::format(
        "<text class=\"{6}\" x=\"{0:.1f}\" y=\"{1:.1f}\" font-size=\"13\" "
        "font-weight=\"600\" fill=\"{2}\">{3:.4f}</text><text class=\"{6}\" x=\"{0:.1f}\" "
        "y=\"{4:.1f}\" fill=\"{2}\">{5}</text>\n",
        kRight + 14, y + 1, color, value, y + 16, name, style);
  }

  const std::vector<CurvePoint> validation_;
  const std::vector<CurvePoint> raw_;
  const std::vector<CurvePoint> smooth_;
  double first_, last_, low_, high_;
  std::string text_;
};

}  // namespace

std::string LossCurveSvg(const LossHistory& history) {
  if (history.training.empty() && history.validation.empty()) {
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 400 60\"><text "
           "class=\"tr-faint\" x=\"20\" "
           "y=\"36\" font-family=\"system-ui, sans-serif\" font-size=\"14\" fill=\"#66727f\">no "
           "losses to show "
           "yet</text></svg>\n";
  }
  return Chart(history).Draw();
}

}  // namespace trireme::report
