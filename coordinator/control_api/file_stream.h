// One reader of a file of a run folder: its bytes from an offset on, as many as it had when it was
// opened.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "coordinator/calls/disk_endings.h"
#include "coordinator/control_api/message_stream.h"

namespace trireme::coordinator {

// What is read of a file in one go; no data: the end.
struct FilePiece {
  int64_t offset = 0;
  std::string data;
};

class RunFileReader;

class FileStream : public FromDiskStream<v1::ReadFileResponse, FilePiece> {
 public:
  FileStream(const v1::ReadFileRequest& request, DiskCalls& disks, DiskEndings& endings,
             StreamSet& streams);
  ~FileStream() override;
  // Before Begin. `store`: whose job it is; of another's folder nothing is read.
  void SetJob(const v1::Job& job, const std::string& store);

 private:
  void Ask() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Use(FilePiece piece) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const v1::ReadFileRequest request_;
  DiskEndings& endings_;
  DiskPath where_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<RunFileReader> reader_ ABSL_GUARDED_BY(mutex_);  // of the look under way, too
  bool was_read_ ABSL_GUARDED_BY(mutex_) = false;                  // so that it may have a file
};

}  // namespace trireme::coordinator
