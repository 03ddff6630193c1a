// Steps of the allocation that we are in, ended by their names. Whoever has started one may die
// without it: a killed srun leaves its ranks at work, on nodes where only Slurm can end them.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/process/task_thread.h"

namespace trireme::slurm {

// Any thread; nothing blocks but the destructor, which waits for the call under way.
class Steps {
 public:
  // The number of the allocation.
  explicit Steps(std::string job);

  // Kills steps of these names, again twice a second for as long as it is asked. True once squeue,
  // called after the first time that these were asked for, has named none of them.
  bool AreGone(const std::set<std::string>& names);

 private:
  void Sweep(const std::set<std::string>& names);

  const std::string job_;
  absl::Mutex mutex_;
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);  // as last asked for
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool under_way_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t swept_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // CLOCK_MONOTONIC
  coordinator::TaskThread thread_;
};

}  // namespace trireme::slurm
