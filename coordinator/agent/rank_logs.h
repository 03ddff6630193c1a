// Bounds the logs of ranks, which grow for as long as an attempt runs: what is neither at a log's
// beginning nor near its end is given back to the disk. The file keeps its length and its offsets:
// ranks, whose descriptors these are, go on appending, and readers see what is gone (ReadLog).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/process/task_thread.h"

namespace trireme::agent {

// Of which this is a multiple: disks give back whole blocks, and what is not whole they zero.
inline constexpr int64_t kRankLogPieceBytes = 1 << 20;

// Leaves the first piece of the file and its last `keep_bytes`, which are rounded up to pieces.
// True: bytes are gone. Unimplemented: this file system gives none back.
absl::StatusOr<bool> TrimRankLog(const std::string& path, int64_t keep_bytes);

// On threads of the logs' file systems, since disks that nodes share may stand still: those then
// hold up neither the logs of others nor the end.
class RankLogs {
 public:
  explicit RankLogs(int64_t keep_bytes);  // 0: all
  // Paths of those that are written now by ranks of this node: others have agents of their own.
  void Watch(std::set<std::string> logs);

 private:
  int64_t Look(int64_t now_unix_ns);

  const int64_t keep_bytes_;
  absl::Mutex mutex_;
  std::set<std::string> logs_ ABSL_GUARDED_BY(mutex_);
  // That a file system cannot; with looks that a disk holds.
  const std::shared_ptr<std::atomic<bool>> told_ = std::make_shared<std::atomic<bool>>(false);
  coordinator::DiskCalls disks_;
  coordinator::TaskThread thread_;
};

}  // namespace trireme::agent
