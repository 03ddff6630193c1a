// One reader of a log: the bytes of a file from an offset on, and what is appended to it while the
// attempt lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "coordinator/calls/disk_endings.h"
#include "coordinator/control_api/api_server.h"
#include "coordinator/control_api/message_stream.h"

namespace trireme::coordinator {

// What is read of a log in one go; no data: there is none yet.
struct LogPiece {
  int64_t offset = 0;
  std::string data;
};

class LogReader;

// Its Look is to be called some times a second.
class LogStream : public FromDiskStream<v1::LogsResponse, LogPiece> {
 public:
  LogStream(const ApiRooms& rooms, const v1::LogsRequest& request, DiskEndings& endings,
            StreamSet& streams);
  ~LogStream() override;
  // Before Begin; CheckLog has let it through.
  void SetJob(const v1::Job& job, const std::string& store);

 private:
  void Ask() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Use(LogPiece piece) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: the job is not started yet; closed, if it never will be.
  bool Begun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AttemptIsOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const JobTable& table_;
  const v1::LogsRequest request_;
  DiskEndings& endings_;
  DiskPath where_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<LogReader> reader_ ABSL_GUARDED_BY(mutex_);  // of the look under way, too
  bool was_read_ ABSL_GUARDED_BY(mutex_) = false;              // so that it may have a file
  uint32_t attempt_ ABSL_GUARDED_BY(mutex_) = 0;               // 0: the first, when there is one
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trireme::coordinator
