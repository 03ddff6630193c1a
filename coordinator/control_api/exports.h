// Exports of checkpoints: one at a time on a thread of its own, some waiting; a caller who leaves
// ends his.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "coordinator/calls/call_progress.h"
#include "coordinator/planning/submission.h"
#include "coordinator/task_thread/task_thread.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

using ExportCall = CallProgress<v1::ExportResponse>;

// Where an export leads. InvalidArgument: a path that is none, or outside of the folders that jobs
// may use.
absl::StatusOr<std::string> ExportFolder(const v1::Job& job, const v1::ExportRequest& request,
                                         uint64_t step, const SubmissionRules& rules);

class Exports {
 public:
  explicit Exports(SubmissionRules rules)
      : rules_(std::move(rules)),
        thread_({.name = "exports",
                 .most_tasks = kMostWaiting,
                 .most_of_owner = kMostWaiting / 2,
                 .between = {}}) {}

  // For the job's owner. `news` is called from the thread when `call` has any. ResourceExhausted:
  // too many wait.
  absl::Status Begin(const v1::Job& job, const v1::ExportRequest& request,
                     const std::shared_ptr<ExportCall>& call, std::function<void()> news);

 private:
  static constexpr size_t kMostWaiting = 16;
  absl::Status Run(const v1::Job& job, const v1::ExportRequest& request, ExportCall& call,
                   const std::function<void()>& news) const;

  const SubmissionRules rules_;
  TaskThread thread_;
};

}  // namespace trireme::coordinator
