// `trireme-worker` without a subcommand: trains the job of a file, this rank's part of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/exit_code.h"
#include "runtime/comm/communicator.h"
#include "worker/link/keeper_link.h"
#include "worker/training_run.h"

namespace trireme::worker {

struct TrainingOptions {
  std::string job;                     // file
  std::vector<std::string> overrides;  // a.b=c
  // Empty: recorder in the run folder, or recorder-by-hand where that is a link.
  std::string recorder_directory;
  KeeperLinkOptions link;  // no address: none is named
  std::string plan_file;   // empty: none is named
  TrainingRunOptions run;
};

// Collective. What ends it too early, log and flight recorder say; then the other ranks are still
// to be told, as by ending the job. `on_failure`, if given, is called for that as soon as it may
// be: this rank itself may be held by its disk for long before this returns.
base::ExitCode RunTraining(TrainingOptions options, comm::Fabric& fabric,
                           const std::function<void(base::ExitCode)>& on_failure = nullptr);

}  // namespace trireme::worker
