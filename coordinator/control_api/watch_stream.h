// One watcher: events from a sequence number on, then as they happen, and the newest progress.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "coordinator/control_api/message_stream.h"

namespace trireme::coordinator {

class WatchStream : public MessageStream<v1::WatchResponse> {
 public:
  // `look_again` is to call LookAgain soon, from another thread: there is much to look through, and
  // others wait.
  WatchStream(const ApiRooms& rooms, const v1::WatchRequest& request, Caller caller,
              StreamSet& streams, std::function<void(LiveStream*)> look_again);
  void LookAgain() override;

 private:
  enum class Found { kOne, kNone, kLater };
  void SendNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // kLater: as many pages as one look may read hold none of these.
  Found NextEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: there are no more, or it has closed.
  bool NextPage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NothingDropped(const absl::StatusOr<uint64_t>& first) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: there is none.
  bool NextProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Mine(uint64_t job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ApiRooms& rooms_;
  const v1::WatchRequest request_;
  const Caller caller_;
  const std::function<void(LiveStream*)> look_again_;
  bool looks_again_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_);
  uint64_t progress_version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<v1::Event> page_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::JobProgress> progress_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
