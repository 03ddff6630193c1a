// One watcher: events from a sequence number on, then as they happen, and the newest progress.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/control_api/call.h"
#include "coordinator/control_api/stream_set.h"

namespace trireme::coordinator {

// Deletes itself when gRPC is done with it.
class WatchStream : public grpc::ServerWriteReactor<v1::WatchResponse>, public LiveStream {
 public:
  // `streams` holds it already.
  WatchStream(const ApiRooms& rooms, const v1::WatchRequest& request, Caller caller,
              StreamSet& streams);

  // Instead of any message.
  void Refuse(const grpc::Status& status);
  void Look() override;
  void End() override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void SendNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: there is none.
  bool NextEvent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool NextProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Mine(uint64_t job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ApiRooms& rooms_;
  const v1::WatchRequest request_;
  const Caller caller_;
  StreamSet& streams_;
  absl::Mutex mutex_;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_);
  uint64_t progress_version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<v1::Event> page_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::JobProgress> progress_ ABSL_GUARDED_BY(mutex_);
  v1::WatchResponse response_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trireme::coordinator
