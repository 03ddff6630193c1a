// Assembly of the page: style sheet, sections in the order in which one asks for them.
#include "runtime/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/report/plan_view.h"
#include "runtime/report/schedule_svg.h"

namespace trireme::report {
namespace {

constexpr const char* kStyle = R"(
:root { --page: #f4f6f8; --card: #ffffff; --ink: #1f2933; --faint: #66727f; --rule: #e3e7eb;
  --accent: #2d69b2; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 56px; }
header { display: flex; align-items: baseline; gap: 16px; flex-wrap: wrap; margin-bottom: 24px; }
h1 { font-size: 30px; margin: 0; letter-spacing: -0.02em; }
h2 { font-size: 13px; margin: 0 0 14px; text-transform: uppercase; letter-spacing: 0.08em; color:
  var(--faint); }
.subtitle { color: var(--faint); }
.mark { margin-left: auto; color: var(--accent); font-weight: 600; letter-spacing: 0.04em; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding:
  22px 26px;
  margin-top: 18px; overflow-x: auto; }
.headlines { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap:
  18px; }
.headlines section { margin: 0; padding: 16px 20px; }
.name, .note { color: var(--faint); font-size: 13px; }
.value { font-size: 27px; font-weight: 650; letter-spacing: -0.02em; font-variant-numeric:
  tabular-nums; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { padding: 7px 12px 7px 0; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; }
th { font-weight: 500; color: var(--faint); white-space: nowrap; }
tr:last-child td, tr:last-child th { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; }
.bar { width: 34%; min-width: 180px; }
.bar div { display: flex; height: 14px; border-radius: 4px; overflow: hidden; background:
  var(--page); margin-top: 4px; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin: 0 6px 0 18px;
  }
.keys { color: var(--faint); font-size: 13px; margin: 12px 0 0 -18px; }
svg { display: block; width: 100%; height: auto; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.55 ui-monospace,
  "DejaVu Sans Mono", monospace; }
.prompt { color: var(--accent); font-weight: 600; }
footer { color: var(--faint); font-size: 13px; margin-top: 22px; }
@media (prefers-color-scheme: dark) {
  :root { --page: #10161c; --card: #18212a; --ink: #e6ebf0; --faint: #94a1ae; --rule: #2a3641;
    --accent: #6ea8e8; }
  .tr-paper { fill: #18212a; } .tr-ink { fill: #e6ebf0; } .tr-faint { fill: #94a1ae; } .tr-idle {
    fill: #222d38; }
  .tr-grid { stroke: #2a3641; } .tr-axis { stroke: #566473; } .tr-dot { stroke: #18212a; }
  .tr-raw, .tr-train { stroke: #6ea8e8; } .tr-train-ink { fill: #6ea8e8; }
  .tr-valid { stroke: #f0984a; } .tr-valid-ink, .tr-dot { fill: #f0984a; }
}
@media print { body { background: #ffffff; } main { padding: 0; } section { break-inside: avoid; }
  }
)";

struct MemoryKind {
  const char* name;
  const char* color;
  uint64_t StageBytes::*bytes;
};

constexpr MemoryKind kMemory[] = {{"parameters", "#2d69b2", &StageBytes::parameters},
                                  {"gradients", "#6c9fd8", &StageBytes::gradients},
                                  {"optimizer", "#8b6fc0", &StageBytes::optimizer},
                                  {"activations", "#168a70", &StageBytes::activations},
                                  {"boundaries", "#7cc4a8", &StageBytes::boundaries},
                                  {"temporaries", "#d68920", &StageBytes::temporaries},
                                  {"scratch", "#e9bd72", &StageBytes::scratch},
                                  {"other", "#9aa5b1", &StageBytes::other}};

std::string Headlines(const std::vector<Headline>& headlines) {
  if (headlines.empty()) return "";
  std::string text = "<div class=\"headlines\">\n";
  for (const Headline& line : headlines) {
    text += fmt::format(
        "<section><div class=\"name\">{}</div><div class=\"value\">{}</div>"
        "<div class=\"note\">{}</div></section>\n",
        EscapeXml(line.name), EscapeXml(line.value), EscapeXml(line.note));
  }
  return text + "</div>\n";
}

std::string Summary(const RunReport& report) {
  std::vector<std::pair<std::string, std::string>> lines;
  if (report.plan != nullptr) lines = SummaryOf(*report.plan);
  lines.insert(lines.end(), report.summary.begin(), report.summary.end());
  if (lines.empty()) return "";
  std::string text = "<section><h2>Summary</h2><table>\n";
  for (const auto& [name, value] : lines) {
    text += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", EscapeXml(name), EscapeXml(value));
  }
  return text + "</table></section>\n";
}

// A bar per stage, as long as its share of the largest stage.
std::string Memory(const v1::Plan& plan) {
  uint64_t largest = 1;
  for (const v1::StagePlan& stage : plan.stages()) largest = std::max(largest, stage.arena_bytes());
  std::string text =
      "<section><h2>Memory per rank</h2><table>\n<tr><th>stage</th><th>holds</th>"
      "<th class=\"number\">bytes</th><th class=\"bar\"></th></tr>\n";
  const int64_t layers = plan.job().model().config().num_hidden_layers();
  for (const int p : RowsShown(static_cast<uint32_t>(plan.stages_size()), 16)) {
    if (p < 0) {
      text += fmt::format("<tr><td>...</td><td>{} stages between</td><td></td><td></td></tr>\n",
                          plan.stages_size() - 16);
      continue;
    }
    const v1::StagePlan& stage = plan.stages(p);
    const StageBytes bytes = BytesOf(stage);
    std::string holds;
    for (int v = 0; v < stage.first_block_size(); ++v) {
      holds += (v == 0 ? "" : "; ") + NameBlocks(stage.first_block(v), stage.end_block(v), layers);
    }
    text +=
        fmt::format("<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"bar\"><div>",
                    p, EscapeXml(holds), ReadableBytes(bytes.total));
    for (const MemoryKind& kind : kMemory) {
      const double share =
          100.0 * static_cast<double>(bytes.*kind.bytes) / static_cast<double>(largest);
      if (share < 0.05) continue;
      text += fmt::format("<span title=\"{} {}\" style=\"width:{:.2f}%;background:{}\"></span>",
                          kind.name, ReadableBytes(bytes.*kind.bytes), share, kind.color);
    }
    text += "</div></td></tr>\n";
  }
  text += "</table><div class=\"keys\">";
  for (const MemoryKind& kind : kMemory) {
    text +=
        fmt::format("<span class=\"key\" style=\"background:{}\"></span>{}", kind.color, kind.name);
  }
  return text + "</div></section>\n";
}

std::string Schedule(const v1::Plan& plan) {
  const absl::StatusOr<std::string> picture = ScheduleSvg(plan);
  const std::string body =
      picture.ok() ? *picture
                   : "<p>" + EscapeXml(std::string(picture.status().message())) + "</p>\n";
  return "<section><h2>Schedule of one step</h2>\n" + body + "</section>\n";
}

}  // namespace

std::string ReportHtml(const RunReport& report) {
  std::string text = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{0} - "
      "Trireme</title>\n<style>{1}</style></head>\n"
      "<body><main>\n<header><h1>{0}</h1><span class=\"subtitle\">{2}</span><span "
      "class=\"mark\">TRIREME</span>"
      "</header>\n",
      EscapeXml(report.title), kStyle, EscapeXml(report.subtitle));
  text += Headlines(report.headlines);
  text += "<section><h2>Loss</h2>\n" + LossCurveSvg(report.losses) + "</section>\n";
  text += Summary(report);
  if (report.plan != nullptr) text += Schedule(*report.plan) + Memory(*report.plan);
  if (!report.sample.empty()) {
    text += fmt::format(
        "<section><h2>Sample</h2><pre><span class=\"prompt\">{}</span>{}</pre></section>\n",
        EscapeXml(report.prompt), EscapeXml(report.sample));
  }
  return text + "</main></body></html>\n";
}

}  // namespace trireme::report
