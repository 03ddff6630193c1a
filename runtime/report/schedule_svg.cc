// Layout: a title line with the legend, then the rows, then a time axis in units of F. A long step
// keeps its beginning and its end, where the pipeline fills and drains; what is left out between
// them is marked.
#include "runtime/report/schedule_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "runtime/report/plan_view.h"

namespace trireme::report {

std::string EscapeXml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

namespace {

using plan::Compute;

constexpr double kCellsLeft = 76;  // of the first cell
constexpr double kRowsTop = 58;    // of the first row
constexpr double kInner = 1000;    // width of the time axis
constexpr double kGap = 46;        // for the part left out
constexpr uint32_t kMostRows = 16;

struct Rgb {
  int red, green, blue;
};

struct KindStyle {
  const char* name;
  Rgb color;
};

KindStyle StyleOf(Compute kind) {
  switch (kind) {
    case Compute::kForward:
      return {"forward", {45, 105, 178}};
    case Compute::kInputGrad:
      return {"input-grad", {22, 138, 112}};
    case Compute::kWeightGrad:
      return {"weight-grad", {214, 137, 32}};
    case Compute::kBackward:
      return {"backward", {22, 138, 112}};
  }
  return {"", {0, 0, 0}};
}

// Towards white with the virtual stage, so that the parts of one rank can be told apart.
double Lightness(uint32_t virtual_stage) {
  static constexpr std::array<double, 4> kSteps = {0, 0.38, 0.6, 0.74};
  return kSteps[virtual_stage % 4];
}

std::string Fill(Compute kind, uint32_t virtual_stage) {
  const double light = Lightness(virtual_stage);
  const Rgb color = StyleOf(kind).color;
  const auto mix = [light](int value) {
    return static_cast<int>(std::lround(value + (255 - value) * light));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(color.red), mix(color.green), mix(color.blue));
}

class Drawing {
 public:
  Drawing(const v1::Plan& plan, const PlanTimeline& timeline)
      : plan_(plan), timeline_(timeline), rows_(RowsShown(timeline.shape.ranks, kMostRows)) {
    const double makespan = timeline.simulation.makespan;
    // The last rank begins P units after the first and ends 2 P before it: both should be seen.
    const double head = std::clamp(timeline.shape.ranks + 30.0, 75.0, 200.0);
    const double tail = std::clamp(2.0 * timeline.shape.ranks + 30.0, 75.0, 300.0);
    if (makespan > head + tail) {
      head_end_ = head;
      tail_begin_ = makespan - tail;
      unit_ = (kInner - kGap) / (head + tail);
    } else {
      head_end_ = makespan;
      tail_begin_ = makespan;
      unit_ = std::min(44.0, kInner / std::max(makespan, 1.0));
    }
    row_height_ = rows_.size() <= 8 ? 34 : 24;
  }

  std::string Draw() {
    const double bottom = kRowsTop + row_height_ * static_cast<double>(rows_.size());
    const double right = std::max(X(timeline_.simulation.makespan), 700.0);
    Add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
        "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n",
        right + 24, bottom + 44);
    Add("<title>Schedule {}, {} micro-batches, bubble {:.1f} %</title>\n",
        EscapeXml(plan_.schedule()), plan_.micro_batches(), 100 * timeline_.simulation.bubble);
    Add("<rect class=\"tr-paper\" width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n");
    Legend(right);
    for (size_t row = 0; row < rows_.size(); ++row) Row(row);
    if (IsCut()) Break(bottom);
    Axis(bottom);
    return text_ + "</svg>\n";
  }

 private:
  template <typename... Parts>
  void Add(fmt::format_string<Parts...> format, Parts&&... parts) {
    text_ += fmt::format(format, std::forward<Parts>(parts)...);
  }

  bool IsCut() const { return head_end_ < tail_begin_; }

  // Left edge of a time; times left out fall into the gap.
  double X(double time) const {
    if (time <= head_end_) return kCellsLeft + time * unit_;
    const double tail = kCellsLeft + head_end_ * unit_ + (IsCut() ? kGap : 0);
    return tail + std::max(0.0, time - tail_begin_) * unit_;
  }

  void Legend(double right) {
    Add("<text class=\"tr-ink\" x=\"20\" y=\"30\" font-size=\"15\" font-weight=\"600\" "
        "fill=\"#1f2933\">{}</text>\n",
        EscapeXml(plan_.schedule()));
    Add("<text class=\"tr-faint\" x=\"{:.1f}\" y=\"30\" font-size=\"13\" fill=\"#66727f\">{} "
        "stages, {} "
        "micro-batches, bubble {:.1f} % of busy time</text>\n",
        28 + 9.2 * static_cast<double>(plan_.schedule().size()), timeline_.shape.ranks,
        timeline_.shape.micro_batches, 100 * timeline_.simulation.bubble);
    std::vector<Compute> kinds = {Compute::kForward};
    const auto& steps = timeline_.simulation.timeline[0];
    const bool split = std::any_of(steps.begin(), steps.end(), [](const auto& s) {
      return s.compute.kind == Compute::kWeightGrad;
    });
    if (split) {
      kinds.insert(kinds.end(), {Compute::kInputGrad, Compute::kWeightGrad});
    } else {
      kinds.push_back(Compute::kBackward);
    }
    double x = right;
    for (size_t i = kinds.size(); i-- > 0;) {
      const KindStyle style = StyleOf(kinds[i]);
      x -= 7.0 * static_cast<double>(std::string(style.name).size()) + 30;
      Add("<rect x=\"{:.1f}\" y=\"19\" width=\"13\" height=\"13\" rx=\"3\" fill=\"{}\"/>"
          "<text class=\"tr-ink\" x=\"{:.1f}\" y=\"30\" font-size=\"13\" "
          "fill=\"#1f2933\">{}</text>\n",
          x, Fill(kinds[i], 0), x + 18, style.name);
    }
  }

  void Row(size_t row) {
    const double y = kRowsTop + row_height_ * static_cast<double>(row);
    const double middle = y + row_height_ / 2 + 4.5;
    if (rows_[row] < 0) {
      Add("<text class=\"tr-faint\" x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"13\" fill=\"#66727f\">"
          "&#8942; {} stages between</text>\n",
          kCellsLeft, middle, timeline_.shape.ranks - kMostRows);
      return;
    }
    Add("<text class=\"tr-faint\" x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"12\" text-anchor=\"end\" "
        "fill=\"#66727f\">stage {}</text>\n",
        kCellsLeft - 10, middle, rows_[row]);
    Add("<rect class=\"tr-idle\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
        "rx=\"3\" "
        "fill=\"#eef1f4\"/>\n",
        kCellsLeft, y + 2, X(timeline_.simulation.makespan) - kCellsLeft, row_height_ - 4);
    for (const plan::SimulatedStep& step :
         timeline_.simulation.timeline[static_cast<size_t>(rows_[row])]) {
      if (step.start >= head_end_ && step.end <= tail_begin_) continue;
      Cell(step, y + 2);
    }
  }

  void Cell(const plan::SimulatedStep& step, double y) {
    const double gap = unit_ > 12 ? 1.5 : unit_ > 5 ? 0.8 : 0.3;
    const double x = X(step.start);
    const double width = X(step.end) - x - gap;
    if (width < 0.5) return;
    Add("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" rx=\"{}\" "
        "fill=\"{}\"/>\n",
        x, y, width, row_height_ - 4, unit_ > 12 ? 3 : 1,
        Fill(step.compute.kind, step.compute.virtual_stage));
    const std::string label = std::to_string(step.compute.micro_batch);
    // All cells of a kind are labelled in one size, or none is.
    const double digits =
        static_cast<double>(std::to_string(timeline_.shape.micro_batches - 1).size());
    const double size =
        std::min(12.5, ((step.end - step.start) * unit_ - gap) / (0.62 * digits + 0.3));
    if (size < 6) return;
    Add("<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{:.1f}\" text-anchor=\"middle\" "
        "fill=\"{}\">{}</text>\n",
        x + width / 2, y + (row_height_ - 4) / 2 + 0.36 * size, size,
        Lightness(step.compute.virtual_stage) > 0.35 ? "#14202b" : "#ffffff", label);
  }

  // Where the middle of the step is left out.
  void Break(double bottom) {
    const double x = kCellsLeft + head_end_ * unit_;
    Add("<rect class=\"tr-paper\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "fill=\"#ffffff\"/>\n",
        x + 2, kRowsTop - 2, kGap - 4, bottom - kRowsTop + 4);
    Add("<text class=\"tr-faint\" x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"18\" "
        "text-anchor=\"middle\" "
        "fill=\"#66727f\">&#8943;</text>\n",
        x + kGap / 2, (kRowsTop + bottom) / 2 + 6);
  }

  void Axis(double bottom) {
    const double makespan = timeline_.simulation.makespan;
    const double shown = head_end_ + (makespan - tail_begin_);
    const double raw = shown / 12;
    double tick = std::pow(10, std::floor(std::log10(std::max(raw, 1.0))));
    for (const double factor : {2.0, 2.5, 2.0}) {
      if (tick < raw) tick = std::round(tick * factor);
    }
    double last = -100;
    for (double time = 0; time <= makespan + 1e-9; time += tick) {
      const bool hidden = time > head_end_ - 1e-9 && time < tail_begin_ + 1e-9 && IsCut();
      if (hidden || X(time) - last < 30) continue;
      last = X(time);
      Add("<line class=\"tr-grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" "
          "stroke=\"#c3cad1\"/><text class=\"tr-faint\" x=\"{0:.1f}\" y=\"{3:.1f}\" "
          "font-size=\"11\" "
          "text-anchor=\"middle\" fill=\"#66727f\">{4:.0f}</text>\n",
          last, bottom + 2, bottom + 7, bottom + 20, time);
    }
    Add("<text class=\"tr-faint\" x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" fill=\"#66727f\">"
        "time, in units of one forward</text>\n",
        kCellsLeft, bottom + 36);
  }

  const v1::Plan& plan_;
  const PlanTimeline& timeline_;
  const std::vector<int> rows_;
  double unit_ = 1;  // pixels per unit of time
  double head_end_ = 0;
  double tail_begin_ = 0;
  double row_height_ = 34;
  std::string text_;
};

}  // namespace

absl::StatusOr<std::string> ScheduleSvg(const v1::Plan& plan) {
  const absl::StatusOr<PlanTimeline> timeline = TimelineOf(plan);
  if (!timeline.ok()) return timeline.status();
  return Drawing(plan, *timeline).Draw();
}

}  // namespace trireme::report
