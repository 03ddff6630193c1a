// What rank 0 leaves in the run folder: metrics.jsonl as the run goes, report.json and sample.txt
// at its end.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/engine/engine.h"
#include "worker/coding_report.h"
#include "worker/event_log.h"

namespace trireme::worker {

struct StepMetrics {
  uint64_t step = 0;  // updates done
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  double tokens_per_second = 0;          // of this step alone
  double overall_tokens_per_second = 0;  // of this attempt so far, by the clock on the wall
  double step_time_ms = 0;
  double utilisation = 0;  // model flops over the measured peak
  engine::ExposureReport exposure;
  bool skipped = false;
  std::optional<CodingRatios> coding;  // since the start of this attempt; absent: nothing is coded
};

// Exposed communication over the logged steps of a run.
struct ExposureSums : engine::ExposureReport {
  double step_seconds = 0;
  void Add(const engine::ExposureReport& step, double duration_s);
  // Of the time of those steps; max_s is the worst rank of each step.
  double Share(double part_s) const { return step_seconds > 0 ? part_s / step_seconds : 0; }
};

// metrics.jsonl of a run folder: one JSON object per line, written through at once, so that a crash
// loses no line. The same numbers go to event files for TensorBoard, where the disk takes them.
class MetricsLog {
 public:
  // Appends to the files of `run_folder`. On a resume what is of steps after `keep_through` is
  // dropped first: it will be written again; so is what is no whole line. What of them cannot be
  // read is not replaced: metrics.jsonl is kept under another name, which is logged, and event
  // files stay whole.
  static absl::StatusOr<MetricsLog> Open(const std::string& run_folder, uint64_t keep_through);
  MetricsLog(MetricsLog&& other) noexcept;
  MetricsLog& operator=(MetricsLog&&) = delete;
  ~MetricsLog();

  void Step(const StepMetrics& metrics);
  void Validation(uint64_t step, double loss);
  // What Open has kept of the step `keep_through` itself.
  struct LastKept {
    bool step = false;
    std::optional<double> validation;  // where it has been evaluated
  };
  const LastKept& last_kept() const { return last_kept_; }
  // For a step whose line was lost with the rank that was to write it: no more of it is known.
  void Restored(uint64_t step, double loss);

 private:
  MetricsLog(std::FILE* file, std::optional<EventLog> events, const LastKept& last_kept)
      : file_(file), events_(std::move(events)), last_kept_(last_kept) {}
  void Write(const nlohmann::ordered_json& line);
  std::FILE* file_;
  bool warned_ = false;  // of a line that was not written
  std::optional<EventLog> events_;
  LastKept last_kept_;
};

// One line with its line feed. Numbers keep all their bits, NaN and Inf are null (JSON has none),
// and bytes that are not UTF-8 are replaced.
std::string JsonLine(const nlohmann::ordered_json& json);

// What a disk refuses for want of room, or does not answer, is DataLoss: no fault of the job, nor
// of its size, and another attempt may fare better. Any other status as it is.
absl::Status OfDisk(const absl::Status& status);

// base::WriteWholeFile for a file of the run, by rank 0. What the disk refuses is DataLoss: no
// fault of the job, nor of its size, and another attempt may fare better.
absl::Status WriteRunFile(const std::string& path, std::string_view content);

// Writes a picture of what goes on, so that a reader sees all of it or the former one. Not flushed,
// as base::WriteWholeFile is: after a power cut it may be empty, and the run makes it anew.
absl::Status WritePicture(const std::string& path, const std::string& text);

}  // namespace trireme::worker
