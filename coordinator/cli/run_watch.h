// Turns a local run to its end, shows how it fares, and passes Ctrl-C on.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/local_run/local_run.h"
#include "trireme/v1/job.pb.h"

namespace trireme::cli {

struct RunOutcome {
  v1::Job job;              // its last state, with the last progress
  double seconds = 0;       // from the start on
  uint64_t first_step = 0;  // as in the options
  bool stop_asked = false;  // while ranks ran
  bool kill_asked = false;
};

struct RunWatchOptions {
  double grace_seconds = 0;
  bool json = false;        // each event and progress as a WatchResponse, nothing for the eye
  uint64_t first_step = 0;  // from which the run goes on
};

// `grace_seconds`: from the first Ctrl-C until ranks that have not saved are killed; 0: by the time
// of their steps and the deadline of `job`. Blocks until the run is over. Errors: LocalRun::Turn's.
absl::StatusOr<RunOutcome> WatchRun(coordinator::LocalRun& run, const v1::JobSpec& job,
                                    const RunWatchOptions& options);

}  // namespace trireme::cli
