// How long work that somebody has asked for gets on: what the thread that does it and the stream of
// who asked share.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {

// Threads: any.
template <typename Response>
class CallProgress {
 public:
  void Tell(const Response& response) {
    const absl::MutexLock lock(&mutex_);
    news_ = response;
  }
  void End(const absl::Status& status) {
    const absl::MutexLock lock(&mutex_);
    ended_ = status;
  }
  // The newest that was told and not taken yet.
  std::optional<Response> Take() {
    const absl::MutexLock lock(&mutex_);
    return std::exchange(news_, std::nullopt);
  }
  // Of work that has ended.
  std::optional<absl::Status> ended() const {
    const absl::MutexLock lock(&mutex_);
    return ended_;
  }

  // Cancelled: nobody waits for it any more.
  absl::Status StillWanted() const {
    return caller_left_ ? absl::CancelledError("the caller has left") : absl::OkStatus();
  }

  // `look` is called by whoever calls News, from any thread, until CallerLeft returns.
  void OnNews(std::function<void()> look) {
    const absl::MutexLock lock(&news_mutex_);
    look_ = std::move(look);
  }
  void News() {
    const absl::MutexLock lock(&news_mutex_);
    if (look_) look_();
  }
  void CallerLeft() {
    caller_left_ = true;
    const absl::MutexLock lock(&news_mutex_);
    look_ = nullptr;
  }

 private:
  std::atomic<bool> caller_left_{false};
  absl::Mutex news_mutex_;  // before any other
  std::function<void()> look_ ABSL_GUARDED_BY(news_mutex_);
  mutable absl::Mutex mutex_;
  std::optional<Response> news_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
