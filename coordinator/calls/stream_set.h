// The streams that are open, bounded in number, so that all of them can be woken and ended.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/calls/access.h"

namespace trireme::coordinator {

// A stream that sends what is new when it is told to look.
class LiveStream {
 public:
  virtual ~LiveStream() = default;
  // Never blocks long; may be called from any thread.
  virtual void Look() = 0;
  // The look that it has asked for itself.
  virtual void LookAgain() { Look(); }
  // What it is to begin with has been found, or, an error, has not: it ends.
  virtual void Begin(const absl::Status& /*found*/) {}
  // Ends it with an error.
  virtual void Refuse(const absl::Status& status) = 0;
};

struct StreamBounds {
  size_t in_all = 0;
  size_t of_user = 0;
};

// Threads: any.
class StreamSet {
 public:
  StreamSet() = default;
  // After its last stream. gRPC's library orders that, unseen by TSan; the mutex does as well.
  ~StreamSet() { const absl::MutexLock lock(&mutex_); }
  // ResourceExhausted: as many as allowed are open; Unavailable: none is allowed any more.
  absl::Status Add(LiveStream* stream, const Caller& caller, const StreamBounds& bounds);
  // Waits for a call to it that is under way.
  void Remove(LiveStream* stream);
  // One after another: in between, others come and go.
  void LookAll();
  // Nothing, if it has gone meanwhile.
  void LookAgain(LiveStream* stream);
  // Of one that waits for that, so it is there still, whether it is one of these or not.
  void Begin(LiveStream* stream, const absl::Status& found);
  // Those whose callers `access` knows no more. Who adds one asks it himself afterwards, for the
  // tokens may have changed since the call came.
  void EndUnknown(const Access& access);
  // All of them, with "the daemon is stopping; ask again"; from now on none is added.
  void End();

 private:
  std::vector<LiveStream*> All();
  void LookIfThere(LiveStream* stream, void (LiveStream::*look)());

  absl::Mutex mutex_;
  std::map<LiveStream*, Caller> streams_ ABSL_GUARDED_BY(mutex_);  // and whose each is
  std::map<std::string, size_t> users_ ABSL_GUARDED_BY(mutex_);    // how many are open
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trireme::coordinator
