// Which file system a path is on, by the kernel's table of mounts alone: nothing of the path itself
// is asked, so a file system that hangs does not hang the question.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {

struct Mount {
  std::string device;  // "0:39": the file system, under whatever folders it is mounted
  std::string folder;  // where
  std::string type;    // "nfs4"
  std::string source;  // "server:/export"
};

// Of the text of /proc/self/mountinfo; lines that are none are passed over.
std::vector<Mount> ParseMounts(std::string_view text);

// The one that `path` is on, by its words: symbolic links are not followed, "." and ".." are taken
// out. One without a device: the table has none.
Mount MountIn(const std::vector<Mount>& mounts, const std::string& path);

// /proc/self/mountinfo, read again when the kernel says that it has changed. Threads: any.
class MountTable {
 public:
  MountTable();
  ~MountTable();
  MountTable(const MountTable&) = delete;
  MountTable& operator=(const MountTable&) = delete;

  Mount Of(const std::string& path);

 private:
  const int fd_;  // -1: this machine has no /proc
  absl::Mutex mutex_;
  bool read_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Mount> mounts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
