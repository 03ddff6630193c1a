// One reader of a log: the bytes of a file from an offset on, and what is appended to it while the
// attempt lives.
#pragma once

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "coordinator/control_api/message_stream.h"

namespace trireme::coordinator {

// Which file a request means; InvalidArgument names the ranks and attempts there are.
absl::StatusOr<std::string> LogPath(const v1::Job& job, uint32_t attempt, int rank);

// Its Look is to be called some times a second.
class LogStream : public MessageStream<v1::LogsResponse> {
 public:
  LogStream(const JobTable& table, const v1::LogsRequest& request, uint32_t attempt,
            std::string path, StreamSet& streams);
  ~LogStream() override;

 private:
  void SendNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: no byte is there.
  bool Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Opened() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AttemptIsOver() const;

  const JobTable& table_;
  const v1::LogsRequest request_;
  const uint32_t attempt_;
  const std::string path_;
  int fd_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t offset_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
