#include "coordinator/cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "coordinator/cli/job_text.h"
#include "coordinator/cli/node_text.h"
#include "coordinator/cli/text_table.h"
#include "runtime/base/text.h"
#include "runtime/report/progress.h"

namespace trireme::cli {
namespace {

using base::Text;

constexpr int kBarColumns = 12;

std::string OneLine(const std::string& text) {
  std::string line = Shown(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// What runs, what is about to, what waits in its order, what has been stopped, what has ended.
int RankOfState(v1::JobState state) {
  switch (state) {
    case v1::JOB_RUNNING:
    case v1::JOB_LAUNCHING:
    case v1::JOB_PLANNING:
    case v1::JOB_PAUSING:
    case v1::JOB_RECOVERING:
      return 0;
    case v1::JOB_PENDING:
      return 1;
    case v1::JOB_PAUSED:
      return 2;
    default:
      return 3;
  }
}

std::vector<const v1::Job*> Ordered(const std::vector<v1::Job>& jobs) {
  std::vector<const v1::Job*> order;
  for (const v1::Job& job : jobs) order.push_back(&job);
  const auto key = [](const v1::Job* job) {
    return std::make_tuple(RankOfState(job->status().state()), job->queue_position(), job->id());
  };
  std::sort(order.begin(), order.end(),
            [&](const v1::Job* a, const v1::Job* b) { return key(a) < key(b); });
  return order;
}

std::string HeaderLine(const TopScene& scene) {
  const v1::Cluster& cluster = scene.cluster;
  std::string text = Text(LocalTime(scene.now_unix_ns), "   triremed ", cluster.version());
  if (cluster.started_unix_ns() != 0) {
    text += ", up " + Ago(cluster.started_unix_ns(), scene.now_unix_ns);
  }
  // As below it: a count of another moment would puzzle.
  size_t at_work = 0, pending = 0;
  for (const v1::Job& job : scene.jobs) {
    at_work += RankOfState(job.status().state()) == 0 ? 1 : 0;
    pending += job.status().state() == v1::JOB_PENDING ? 1 : 0;
  }
  return OneLine(
      Text(text, "   ", base::Counted(at_work, "job"), " at work, ", pending, " pending"));
}

std::string BarText(double used, double all, const TopShape& shape) {
  const double fraction = all > 0 ? std::clamp(used / all, 0.0, 1.0) : 0;
  return report::Bar(fraction, kBarColumns, {.unicode = shape.unicode, .color = false});
}

std::string NodeNote(const v1::Node& node, int64_t now) {
  std::string note = node.reason();
  if (node.state() == v1::NODE_LOST) {
    const bool reported = node.last_report_unix_ns() > 0;
    note = Text(reported ? Text("last report ", Ago(node.last_report_unix_ns(), now), " ago")
                         : "has not come back",
                note.empty() ? "" : "; ", note);
  }
  return OneLine(note);
}

// At most `most` lines of a table of `rows`, with the one that counts those left out.
std::vector<std::string> Fit(const TextTable& table, size_t rows, size_t most, size_t width,
                             const char* what) {
  if (rows < most) return LinesOf(table.Text(width));
  if (most == 0) return {};
  const size_t shown = most > 2 ? most - 2 : 0;
  std::vector<std::string> lines;
  if (most > 1) lines = LinesOf(table.Text(width, shown));
  lines.push_back(Text("... and ", base::Counted(rows - shown, what)));
  return lines;
}

std::vector<std::string> NodeLines(const TopScene& scene, const TopShape& shape, size_t most) {
  TextTable table({"NODE", "STATE", "", "CPUS", "MEMORY", "GPUS", "NOTE"}, {3, 4, 5});
  table.Shrink({0});
  for (const v1::Node& node : scene.cluster.nodes()) {
    table.Add({{OneLine(node.name())},
               NodeStateCell(node, shape.color),
               {BarText(node.cpus_used(), node.cpus(), shape), shape.color ? "\x1b[36m" : "",
                shape.color ? "\x1b[0m" : ""},
               {Text(node.cpus_used(), " / ", node.cpus())},
               {NodeMemoryText(node)},
               {NodeGpusText(node)},
               {NodeNote(node, scene.now_unix_ns)}});
  }
  return Fit(table, static_cast<size_t>(scene.cluster.nodes_size()), most, shape.width, "node");
}

std::string EtaText(const v1::Job& job, const TopScene& scene) {
  const auto found = scene.tokens_per_step.find(job.id());
  if (found == scene.tokens_per_step.end()) return "-";
  const double seconds = RemainingSeconds(job, found->second);
  return seconds < 0 ? "-" : report::FormatDuration(seconds);
}

std::vector<std::string> JobLines(const TopScene& scene, const TopShape& shape, size_t most) {
  TextTable table(
      {"JOB", "NAME", "OWNER", "STATE", "AGE", "STEP", "LOSS", "TOKENS/S", "ETA", "NOTE"},
      {0, 4, 5, 6, 7, 8});
  table.Shrink({1, 2});
  for (const v1::Job* job : Ordered(scene.jobs)) {
    const v1::Progress& progress = job->progress();
    const bool moves = job->status().state() == v1::JOB_RUNNING && progress.steps_done() > 0;
    table.Add({{std::to_string(job->id())},
               {OneLine(job->name())},
               {job->owner().empty() ? "-" : OneLine(job->owner())},
               StateCell(job->status().state(), shape.color),
               {Ago(job->submitted_unix_ns(), scene.now_unix_ns)},
               {StepsOf(*job)},
               {progress.steps_done() > 0 ? fmt::format("{:.4f}", progress.loss()) : "-"},
               {moves ? report::FormatRate(progress.tokens_per_second()) : "-"},
               {EtaText(*job, scene)},
               {OneLine(NoteOf(*job))}});
  }
  return Fit(table, scene.jobs.size(), most, shape.width, "job");
}

}  // namespace

double RemainingSeconds(const v1::Job& job, double tokens_per_step) {
  const v1::Progress& progress = job.progress();
  const bool known = job.status().state() == v1::JOB_RUNNING && progress.steps_done() > 0 &&
                     progress.tokens_per_second() > 0 && tokens_per_step > 0 &&
                     progress.steps_total() >= progress.steps_done();
  if (!known) return -1;
  const auto left = static_cast<double>(progress.steps_total() - progress.steps_done());
  // Checkpoints and evaluations will go on taking their part of the time.
  const double overall = progress.overall_tokens_per_second();
  return left * tokens_per_step / (overall > 0 ? overall : progress.tokens_per_second());
}

std::string TopText(const TopScene& scene, const TopShape& shape) {
  const size_t height = shape.height == 0 ? SIZE_MAX : shape.height;
  std::vector<std::string> screen = {HeaderLine(scene)};
  if (!scene.notice.empty()) {
    const std::string notice = OneLine(scene.notice);
    screen.push_back(shape.color ? "\x1b[33m" + notice + "\x1b[0m" : notice);
  }
  const auto append = [&](const std::vector<std::string>& lines) {
    screen.insert(screen.end(), lines.begin(), lines.end());
  };
  const size_t room = height > screen.size() + 2 ? height - screen.size() - 2 : 0;
  // Jobs matter more; nodes get what they leave, and a third of the room at least.
  const size_t for_jobs = scene.jobs.size() + 1;
  const size_t for_nodes = std::max(room / 3, room > for_jobs ? room - for_jobs : 0);
  screen.emplace_back();
  if (scene.cluster.nodes().empty()) {
    append({"no nodes; one joins when trireme-agent is started on it"});
  } else {
    append(NodeLines(scene, shape, for_nodes));
  }
  screen.emplace_back();
  if (scene.jobs.empty()) {
    append({"no jobs that have not ended"});
  } else {
    append(JobLines(scene, shape, height > screen.size() ? height - screen.size() : 0));
  }
  if (screen.size() > height) screen.resize(height);
  std::string text;
  for (const std::string& line : screen) {
    if (!text.empty()) text += '\n';
    text += shape.width > 0 ? CutLine(line, shape.width) : line;
  }
  return text;
}

}  // namespace trireme::cli
