// How an export gets on: what the thread that makes it and the stream of who asked for it share.
#pragma once

#include <atomic>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

// Threads: any.
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

}  // namespace trireme::coordinator
