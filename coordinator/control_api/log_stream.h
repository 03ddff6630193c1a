// One reader of a log: the bytes of a file from an offset on, and what is appended to it while the
// attempt lives.
#pragma once

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "coordinator/control_api/api_server.h"
#include "coordinator/control_api/message_stream.h"

namespace trireme::coordinator {

// Its Look is to be called some times a second.
class LogStream : public MessageStream<v1::LogsResponse> {
 public:
  // CheckLog has let it through.
  LogStream(const ApiRooms& rooms, const v1::LogsRequest& request, const v1::Job& job,
            StreamSet& streams);
  ~LogStream() override;

 private:
  void SendNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: the job is not started yet; closed, if it never will be.
  bool Begun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: no byte is there.
  bool Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Opened() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AttemptIsOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const JobTable& table_;
  const v1::LogsRequest request_;
  const std::string store_;
  const v1::Job job_;
  uint32_t attempt_ ABSL_GUARDED_BY(mutex_);  // 0: the first, when there is one
  int fd_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t offset_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
