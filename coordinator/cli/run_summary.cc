// The last words of a good run, and its report.html.
#include "coordinator/cli/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "checkpoint/client/reader.h"
#include "coordinator/cli/resume_point.h"
#include "coordinator/cli/run_folder.h"
#include "runtime/base/text.h"
#include "runtime/base/utf8.h"
#include "runtime/data/bigram.h"
#include "runtime/json/json_text.h"
#include "runtime/report/loss_curve.h"
#include "runtime/report/plan_view.h"
#include "runtime/report/run_report.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMostYardstickBytes = uintmax_t{256} << 20;
constexpr int kSampleLines = 12;
constexpr double kLeastShown = 0.0005;  // a share that is not "0.0 %"

// NaN where there is no validation split or the text is too long to read again for a comparison.
double Yardstick(const v1::JobSpec& job) {
  uintmax_t bytes = 0;
  std::error_code error;
  for (const std::string& file : job.data().text_files()) bytes += fs::file_size(file, error);
  if (error || bytes > kMostYardstickBytes || job.data().validation_fraction() == 0) return NAN;
  const auto dataset = data::OpenDataset(coordinator::DatasetOptionsOf(job));
  return dataset.ok() ? data::ByteBigramLoss(**dataset) : NAN;
}

// The worker's means over the whole run (report.json) instead of rank 0's last step; what is
// missing keeps that.
struct RunMeans {
  double tokens_per_second = 0;          // in steps
  double overall_tokens_per_second = 0;  // since the first step; 0: not known
  double utilisation = 0;
  std::string checkpoint;   // of the end, or empty
  size_t failed_saves = 0;  // of the last attempt
  // Shares of the step's time, means over the ranks; negative: not known.
  double exposed = -1;
  double bubble = -1;   // its part of waiting for ranks that were still computing
  double offload = -1;  // beside it: waiting for what is offloaded
  // "sums of gradients 8.1 times, messages 5.4 times fewer bytes", or empty.
  std::string compression;
  std::string warning;
};

std::string CompressionOf(const nlohmann::json& report) {
  std::string text;
  const auto found = report.find("compression");
  if (found == report.end()) return text;
  for (const auto& [axis, name] :
       {std::pair("gradients", "sums of gradients"), std::pair("messages", "messages")}) {
    const auto part = found->find(axis);
    if (part == found->end() || part->value("plain_bytes", 0.0) == 0) continue;
    text +=
        fmt::format("{}{} {:.1f} times", text.empty() ? "" : ", ", name, part->value("ratio", 1.0));
  }
  return text.empty() ? text : text + " fewer bytes";
}

RunMeans MeansOf(const RunEnd& end) {
  RunMeans means{end.progress.tokens_per_second, end.progress.overall_tokens_per_second,
                 end.progress.utilisation};
  const auto json = json_text::Parse(ReadFile(end.run_folder + "/report.json"));
  if (!json.is_object()) return means;
  const auto read = [&](const char* name, double fallback) {
    const auto found = json.find(name);
    return found != json.end() && found->is_number() ? found->get<double>() : fallback;
  };
  means.tokens_per_second = read("tokens_per_second", means.tokens_per_second);
  means.overall_tokens_per_second =
      read("overall_tokens_per_second", means.overall_tokens_per_second);
  means.utilisation = read("utilisation", means.utilisation);
  means.exposed = read("exposed_communication_share", means.exposed);
  means.bubble = read("exposed_bubble_share", means.bubble);
  means.offload = read("exposed_offload_share", means.offload);
  means.checkpoint = json.value("checkpoint", "");
  means.failed_saves = static_cast<size_t>(read("failed_saves", 0));
  means.compression = CompressionOf(json);
  means.warning = json.value("warning", "");
  return means;
}

// Of a run that went on, what this call did itself stands beside the whole.
std::string StepsOf(const RunEnd& end) {
  const uint64_t all = end.progress.steps_done;
  if (end.first_step == 0) return fmt::format("{} steps", all);
  return fmt::format("step {} of {}, {}", all, end.progress.steps_total,
                     base::Counted(all - std::min(all, end.first_step), "step"));
}

std::string LogOf(const RunEnd& end) { return end.run_folder + "/logs/rank-0.log"; }

std::string FailedSaves(const RunEnd& end, const RunMeans& means) {
  return fmt::format("{} could not be written: see {}",
                     base::Counted(means.failed_saves, "checkpoint"), LogOf(end));
}

// What a run goes on from, which is an older one where that of the end could not be written.
std::string CheckpointOf(const PlannedJob& planned, const RunEnd& end, const RunMeans& means) {
  if (!means.checkpoint.empty()) return means.checkpoint;
  const auto newest = checkpoint::FindNewest(CheckpointRoot(end.run_folder, planned.job));
  if (!newest.ok()) return "none was written: see " + LogOf(end);
  return fmt::format("{}; that of the end was not written: see {}", *newest, LogOf(end));
}

// Steps that training.nonfinite_policy left out.
size_t SkippedSteps(const RunEnd& end) {
  std::istringstream metrics(ReadFile(end.run_folder + "/metrics.jsonl"));
  size_t skipped = 0;
  for (std::string line; std::getline(metrics, line);) {
    skipped += line.find("\"skipped\":true") != std::string::npos;
  }
  return skipped;
}

std::string Indented(const std::string& text, int most_lines) {
  std::istringstream in(text);
  std::string out, line;
  for (int i = 0; std::getline(in, line); ++i) {
    if (i == most_lines) return out.append("  ...\n");
    out.append("  ").append(line).append("\n");
  }
  return out;
}

absl::Status WriteReport(const PlannedJob& planned, const RunEnd& end, double yardstick,
                         const report::LossHistory& losses, const std::string& sample) {
  report::RunReport html;
  html.title = planned.job.name();
  html.subtitle =
      fmt::format("finished {} in {}", StepsOf(end), report::FormatDuration(end.seconds));
  if (!losses.validation.empty()) {
    html.headlines.push_back(
        {"validation loss", fmt::format("{:.4f}", losses.validation.back().value),
         std::isfinite(yardstick) ? fmt::format("a bigram model: {:.4f}", yardstick) : ""});
  }
  if (!losses.training.empty()) {
    html.headlines.push_back({"training loss", fmt::format("{:.4f}", losses.training.back().value),
                              fmt::format("at first {:.4f}", losses.training.front().value)});
  }
  const RunMeans means = MeansOf(end);
  html.headlines.push_back(
      {"tokens per second in steps", report::FormatRate(means.tokens_per_second),
       means.overall_tokens_per_second > 0
           ? fmt::format("{} overall, with checkpoints, evaluation and measuring",
                         report::FormatRate(means.overall_tokens_per_second))
           : ""});
  html.headlines.push_back({"model-FLOPs utilisation",
                            fmt::format("{:.1f} %", means.utilisation * 100),
                            "of the measured peak"});
  if (means.exposed >= 0) {
    html.headlines.push_back(
        {"exposed communication", fmt::format("{:.1f} %", means.exposed * 100),
         fmt::format("of the steps, mean over the ranks; {:.1f} % is waiting for late ranks",
                     std::max(0.0, means.bubble) * 100)});
  }
  if (means.offload >= kLeastShown) {
    html.headlines.push_back({"waiting for offload", fmt::format("{:.1f} %", means.offload * 100),
                              "of the steps, mean over the ranks"});
  }
  html.summary = {{"run folder", end.run_folder},
                  {"checkpoint", CheckpointOf(planned, end, means)}};
  if (means.failed_saves > 0) html.summary.emplace_back("not saved", FailedSaves(end, means));
  if (!means.compression.empty()) html.summary.emplace_back("compression", means.compression);
  if (!means.warning.empty()) html.summary.emplace_back("warning", means.warning);
  html.losses = losses;
  html.plan = &planned.plan;
  // The sample begins with its prompt, which the page sets apart.
  const std::string prompt = base::ShowableUtf8(planned.job.generation().prompt());
  const bool prompted = sample.rfind(prompt, 0) == 0;
  if (prompted) html.prompt = prompt;
  html.sample = prompted ? sample.substr(prompt.size()) : sample;
  return WriteFile(end.run_folder + "/report.html", report::ReportHtml(html));
}

}  // namespace

absl::Status CheckOutcome(const std::string& run_folder) {
  const auto json = json_text::Parse(ReadFile(run_folder + "/report.json"));
  if (!json.is_object()) {
    return absl::FailedPreconditionError(fmt::format(
        "the ranks ended well, but {}/report.json is not there: was the folder moved or "
        "emptied during the run?",
        run_folder));
  }
  if (!json.value("checkpoint", "").empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("trained to the end, but the last checkpoint could not be written (why: "
                  "{}/logs/rank-0.log); free space first",
                  run_folder));
}

std::string SummariseRun(const PlannedJob& planned, const RunEnd& end,
                         const report::ProgressStyle& style) {
  const RunMeans means = MeansOf(end);
  std::string text =
      fmt::format("done: {} in {}, {} tokens/s in steps", StepsOf(end),
                  report::FormatDuration(end.seconds), report::FormatRate(means.tokens_per_second));
  if (means.overall_tokens_per_second > 0) {
    text += fmt::format(", {} overall", report::FormatRate(means.overall_tokens_per_second));
  }
  if (means.utilisation > 0) {
    text += fmt::format(", MFU {:.1f} % of the measured peak", means.utilisation * 100);
  }
  if (means.exposed >= 0) {
    text += fmt::format(", exposed communication {:.1f} % (late ranks {:.1f} %)",
                        means.exposed * 100, std::max(0.0, means.bubble) * 100);
  }
  if (means.offload >= kLeastShown) {
    text += fmt::format(", waiting for offload {:.1f} %", means.offload * 100);
  }
  text += "\n";
  const auto losses = report::ParseMetrics(ReadFile(end.run_folder + "/metrics.jsonl"));
  if (!losses.ok()) {
    return text + fmt::format("  {}/metrics.jsonl: {}\n", end.run_folder,
                              std::string(losses.status().message()));
  }
  const auto& training = losses->training;
  if (!training.empty()) {
    text += fmt::format("  training loss    {:.4f} -> {:.4f}\n", training.front().value,
                        training.back().value);
  }
  if (!means.compression.empty()) {
    text += fmt::format("  compression      {}\n", means.compression);
  }
  if (means.failed_saves > 0) {
    text += fmt::format("  not saved        {}\n", FailedSaves(end, means));
  }
  if (!means.warning.empty()) text += fmt::format("  warning          {}\n", means.warning);
  if (const size_t skipped = SkippedSteps(end); skipped > 0) {
    text += fmt::format("  skipped          {} steps with NaN or Inf\n", skipped);
  }
  const double yardstick = losses->validation.empty() ? NAN : Yardstick(planned.job);
  if (!losses->validation.empty()) {
    text += fmt::format("  validation loss  {:.4f}", losses->validation.back().value);
    if (std::isfinite(yardstick)) text += fmt::format("  (a bigram model: {:.4f})", yardstick);
    text += "\n";
  }
  if (training.size() > 1) {
    report::CurveOptions curve;
    curve.width = std::clamp(style.width - 1, 30, 80);
    curve.height = 10;
    curve.unicode = style.unicode;
    curve.color = style.color;
    text.append("\n").append(report::LossCurveText(*losses, curve));
  }
  // Tokens that are bytes may make no characters.
  const std::string sample = base::ShowableUtf8(ReadFile(end.run_folder + "/sample.txt"));
  if (!sample.empty()) text.append("\nsample:\n").append(Indented(sample, kSampleLines));
  text += fmt::format("\nrun folder  {}\n", end.run_folder);
  text += fmt::format("checkpoint  {}\n", CheckpointOf(planned, end, means));
  const absl::Status written = WriteReport(planned, end, yardstick, *losses, sample);
  text += written.ok() ? fmt::format("report      {}/report.html\n", end.run_folder)
                       : fmt::format("no report: {}\n", std::string(written.message()));
  return text;
}

}  // namespace trireme::cli
