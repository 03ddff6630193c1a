// The streams that are open, bounded in number, so that all of them can be woken and ended.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/control_api/rates.h"

namespace trireme::coordinator {

// A stream that sends what is new when it is told to look.
class LiveStream {
 public:
  virtual ~LiveStream() = default;
  // Never blocks long; may be called from any thread.
  virtual void Look() = 0;
  // The look that it has asked for itself.
  virtual void LookAgain() { Look(); }
  // Ends it, with "the daemon is stopping; ask again".
  virtual void End() = 0;
};

struct StreamBounds {
  size_t in_all = 0;
  size_t of_user = 0;
};

// Threads: any.
class StreamSet {
 public:
  // ResourceExhausted: as many as allowed are open; Unavailable: none is allowed any more.
  absl::Status Add(LiveStream* stream, const std::string& user, const StreamBounds& bounds) {
    const absl::MutexLock lock(&mutex_);
    if (ended_) return absl::UnavailableError("the daemon is stopping; ask again");
    const auto open = users_.find(user);
    const size_t of_user = open == users_.end() ? 0 : open->second;
    if (streams_.size() >= bounds.in_all || of_user >= bounds.of_user) {
      const bool own = of_user >= bounds.of_user;
      if (own) {
        return absl::ResourceExhaustedError(
            absl::StrCat(of_user, " streams of this kind are open for ", user,
                         " and no more are allowed; close some"));
      }
      return WithRetryAfter(
          absl::ResourceExhaustedError(absl::StrCat("too many streams of this kind are open (",
                                                    streams_.size(), "); try again later")),
          kFullForMs);
    }
    ++users_[user];
    streams_[stream] = user;
    return absl::OkStatus();
  }
  // Waits for a call to it that is under way.
  void Remove(LiveStream* stream) {
    const absl::MutexLock lock(&mutex_);
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return;
    if (--users_[found->second] == 0) users_.erase(found->second);
    streams_.erase(found);
  }
  // One after another: in between, others come and go.
  void LookAll() {
    for (LiveStream* stream : All()) LookIfThere(stream, &LiveStream::Look);
  }
  // Nothing, if it has gone meanwhile.
  void LookAgain(LiveStream* stream) { LookIfThere(stream, &LiveStream::LookAgain); }
  void End() {
    const absl::MutexLock lock(&mutex_);
    ended_ = true;
    for (const auto& [stream, user] : streams_) stream->End();
  }

 private:
  std::vector<LiveStream*> All() {
    const absl::MutexLock lock(&mutex_);
    std::vector<LiveStream*> all;
    for (const auto& [stream, user] : streams_) all.push_back(stream);
    return all;
  }
  void LookIfThere(LiveStream* stream, void (LiveStream::*look)()) {
    const absl::MutexLock lock(&mutex_);
    if (streams_.contains(stream)) (stream->*look)();
  }

  absl::Mutex mutex_;
  std::map<LiveStream*, std::string> streams_ ABSL_GUARDED_BY(mutex_);  // and whose each is
  std::map<std::string, size_t> users_ ABSL_GUARDED_BY(mutex_);         // how many are open
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trireme::coordinator
