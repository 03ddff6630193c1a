// The streams that are open, bounded in number, so that all of them can be woken and ended.
#pragma once

#include <functional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {

// A stream that sends what is new when it is told to look.
class LiveStream {
 public:
  virtual ~LiveStream() = default;
  // Never blocks long; may be called from any thread.
  virtual void Look() = 0;
  // Ends it, with "the daemon is stopping; ask again".
  virtual void End() = 0;
};

// Threads: any.
class StreamSet {
 public:
  // False: as many as allowed are open, or none is allowed any more.
  bool Add(LiveStream* stream, size_t most) {
    const absl::MutexLock lock(&mutex_);
    if (ended_ || streams_.size() >= most) return false;
    streams_.insert(stream);
    return true;
  }
  // Waits for calls to it that are under way.
  void Remove(LiveStream* stream) {
    const absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
  }
  void LookAll() {
    const absl::MutexLock lock(&mutex_);
    for (LiveStream* stream : streams_) stream->Look();
  }
  void End() {
    const absl::MutexLock lock(&mutex_);
    ended_ = true;
    for (LiveStream* stream : streams_) stream->End();
  }

 private:
  absl::Mutex mutex_;
  std::set<LiveStream*> streams_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trireme::coordinator
