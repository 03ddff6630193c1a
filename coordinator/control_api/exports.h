// Exports of checkpoints: one at a time on a thread of its own, some waiting; a caller who leaves
// ends his.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "coordinator/calls/export_state.h"
#include "coordinator/control_api/message_stream.h"
#include "coordinator/planning/submission.h"
#include "coordinator/task_thread/task_thread.h"

namespace trireme::coordinator {

// Sends what is newest; the end, when there is one.
class ExportStream : public MessageStream<v1::ExportResponse> {
 public:
  ExportStream(std::shared_ptr<ExportState> state, StreamSet& streams)
      : PacedStream(streams), state_(std::move(state)) {}
  ~ExportStream() override { state_->caller_left = true; }

 private:
  void SendNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<ExportState> state_;
};

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

  // For the job's owner. `news` is called from the thread when `state` has any. ResourceExhausted:
  // too many wait.
  absl::Status Begin(const v1::Job& job, const v1::ExportRequest& request,
                     const std::shared_ptr<ExportState>& state, std::function<void()> news);

 private:
  static constexpr size_t kMostWaiting = 16;
  absl::Status Run(const v1::Job& job, const v1::ExportRequest& request, ExportState& state,
                   const std::function<void()>& news) const;

  const SubmissionRules rules_;
  TaskThread thread_;
};

}  // namespace trireme::coordinator
