// One watcher: events from a sequence number on, then as they happen, and the newest progress.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "coordinator/control_api/message_stream.h"

namespace trireme::coordinator {

class WatchStream : public MessageStream<v1::WatchResponse> {
 public:
  WatchStream(const ApiRooms& rooms, const v1::WatchRequest& request, Caller caller,
              StreamSet& streams);

 private:
  void SendNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: there is none.
  bool NextEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool NextProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Mine(uint64_t job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ApiRooms& rooms_;
  const v1::WatchRequest request_;
  const Caller caller_;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_);
  uint64_t progress_version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<v1::Event> page_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::JobProgress> progress_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
