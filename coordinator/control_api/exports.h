// Exports of checkpoints: one at a time of those that read and write the same file systems, some
// waiting; a caller who leaves ends his, and one that a file system holds for two minutes ends too.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "coordinator/calls/call_progress.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/planning/submission.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

using ExportCall = CallProgress<v1::ExportResponse>;

// Where an export leads. InvalidArgument: a path that is none, or outside of the folders that jobs
// may use.
absl::StatusOr<std::string> ExportFolder(const v1::Job& job, const v1::ExportRequest& request,
                                         uint64_t step, const SubmissionRules& rules);

class Exports {
 public:
  // `store`: whose jobs they are. `hanging` and `no_progress_for`: of DiskCallsOptions,
  // hanging_of_all and deadline.
  Exports(SubmissionRules rules, std::string store, std::shared_ptr<std::atomic<size_t>> hanging,
          std::chrono::milliseconds no_progress_for = std::chrono::minutes(2));

  // For the job's owner. ResourceExhausted: too many wait; Unavailable: the end has come.
  absl::Status Begin(const v1::Job& job, const v1::ExportRequest& request,
                     const std::shared_ptr<ExportCall>& call);

 private:
  const SubmissionRules rules_;
  const std::string store_;
  DiskCalls calls_;
};

}  // namespace trireme::coordinator
