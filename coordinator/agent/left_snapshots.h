// What runs have left of snapshots in this node's memory and nobody has gone on with.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "checkpoint/client/snapshot_sweep.h"
#include "coordinator/process/task_thread.h"

namespace trireme::agent {

struct LeftSnapshotsOptions {
  std::string root = "/dev/shm";      // a file system in memory
  std::chrono::milliseconds keep{0};  // since a rank has held it last; 0: for ever
};

// On a thread of its own: the kernel needs tens of seconds for hundreds of GiB, and nobody who
// reports may wait for that. Threads: one.
class LeftSnapshots {
 public:
  explicit LeftSnapshots(LeftSnapshotsOptions options);
  // Ends behind the part that is being freed; the next one goes on there.
  ~LeftSnapshots() { ends_ = true; }
  LeftSnapshots(const LeftSnapshots&) = delete;
  LeftSnapshots& operator=(const LeftSnapshots&) = delete;

 private:
  int64_t Look(int64_t now_unix_ns);

  const std::chrono::nanoseconds look_every_;
  std::atomic<bool> ends_{false};
  checkpoint::SnapshotSweep sweep_;  // the thread's
  coordinator::TaskThread thread_;   // ends first
};

}  // namespace trireme::agent
