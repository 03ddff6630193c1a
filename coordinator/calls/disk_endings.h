// The end of what lies on a disk, as of an open file: close(2) of one on a mount that hangs does
// not come back, so it is called on a thread of that disk, whoever lets the file go.
#pragma once

#include <memory>

#include "coordinator/disk_calls/disk_calls.h"

namespace trireme::coordinator {

// Threads: any.
class DiskEndings {
 public:
  // `disks` outlives it.
  explicit DiskEndings(DiskCalls& disks) : disks_(disks) {}

  // Never blocks. The last owner of `thing` is a thread of the file system of `where`; where none
  // takes it, because all of them hang or the end has come, one thread for all such, which nobody
  // waits for.
  void End(DiskPath where, std::shared_ptr<void> thing);

 private:
  class Rest;
  struct Parcel;
  static std::shared_ptr<Rest> NewRest();

  DiskCalls& disks_;
  const std::shared_ptr<Rest> rest_ = NewRest();
};

}  // namespace trireme::coordinator
