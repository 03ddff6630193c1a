// Exports of checkpoints: one at a time on a thread of its own, some waiting; a caller who leaves
// ends his.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/control_api/message_stream.h"
#include "coordinator/planning/submission.h"
#include "coordinator/task_thread/task_thread.h"

namespace trireme::coordinator {

// What the thread and the caller's stream share. Threads: any.
class ExportState {
 public:
  void Tell(const v1::ExportResponse& response);
  void End(const absl::Status& status);
  // The newest that was told and not taken yet.
  std::optional<v1::ExportResponse> Take();
  // Of an export that has ended.
  std::optional<absl::Status> ended() const;

  std::atomic<bool> caller_left{false};

 private:
  mutable absl::Mutex mutex_;
  std::optional<v1::ExportResponse> news_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

// Sends what is newest; the end, when there is one.
class ExportStream : public MessageStream<v1::ExportResponse> {
 public:
  ExportStream(std::shared_ptr<ExportState> state, StreamSet& streams)
      : MessageStream(streams), state_(std::move(state)) {}
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
