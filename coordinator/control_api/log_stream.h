// One reader of a log: the bytes of a file from an offset on, and what is appended to it while the
// attempt lives.
#pragma once

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/control_api/call.h"
#include "coordinator/control_api/stream_set.h"

namespace trireme::coordinator {

// Which file a request means; InvalidArgument names the ranks and attempts there are.
absl::StatusOr<std::string> LogPath(const v1::Job& job, uint32_t attempt, int rank);

// Deletes itself when gRPC is done with it.
class LogStream : public grpc::ServerWriteReactor<v1::LogsResponse>, public LiveStream {
 public:
  // `streams` holds it already; its Look is called some times a second.
  LogStream(const JobTable& table, const v1::LogsRequest& request, uint32_t attempt,
            std::string path, StreamSet& streams);

  // Instead of any message.
  void Refuse(const grpc::Status& status);
  void Look() override;
  void End() override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void SendNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: no byte is there.
  bool Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Opened() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AttemptIsOver() const;
  void Close(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const JobTable& table_;
  const v1::LogsRequest request_;
  const uint32_t attempt_;
  const std::string path_;
  StreamSet& streams_;
  absl::Mutex mutex_;
  int fd_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t offset_ ABSL_GUARDED_BY(mutex_);
  v1::LogsResponse response_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trireme::coordinator
