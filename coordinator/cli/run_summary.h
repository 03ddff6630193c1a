// What is said and kept at the end of a good run.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "coordinator/cli/job_loading.h"
#include "runtime/recorder/flight_recorder.h"
#include "runtime/report/progress.h"

namespace trireme::cli {

struct RunEnd {
  std::string run_folder;
  recorder::Progress progress;  // of rank 0, the last
  double seconds = 0;           // from the launch on
  uint64_t first_step = 0;      // that of the checkpoint from which it went on; 0: from the start
};

// FailedPrecondition if the run left no checkpoint of its end, or no report at all.
absl::Status CheckOutcome(const std::string& run_folder);

// The text for the terminal; also writes RUN/report.html. Reads metrics.jsonl and sample.txt of the
// run folder, and the training text once more for the bigram yardstick.
std::string SummariseRun(const PlannedJob& planned, const RunEnd& end,
                         const report::ProgressStyle& style);

}  // namespace trireme::cli
