// One reader of a file of a run folder: its bytes from an offset on, as many as it had when it was
// opened.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "coordinator/control_api/message_stream.h"

namespace trireme::coordinator {

class FileStream : public MessageStream<v1::ReadFileResponse> {
 public:
  // Takes `fd`, of a plain file.
  FileStream(const v1::ReadFileRequest& request, int fd, StreamSet& streams);
  ~FileStream() override;

 private:
  void SendNext() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int fd_;
  int64_t offset_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t end_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trireme::coordinator
