// Exports of checkpoints: one at a time of those on one file system, some waiting; a caller who
// leaves ends his.
#pragma once

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
  // `store`: whose jobs they are.
  Exports(SubmissionRules rules, std::string store);

  // For the job's owner. ResourceExhausted: too many wait; Unavailable: the end has come.
  absl::Status Begin(const v1::Job& job, const v1::ExportRequest& request,
                     const std::shared_ptr<ExportCall>& call);

 private:
  const SubmissionRules rules_;
  const std::string store_;
  DiskCalls calls_;
};

}  // namespace trireme::coordinator
