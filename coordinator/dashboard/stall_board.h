// Which ranks of which jobs stand still, for lists of jobs that are asked for once a second: the
// events of a job are read when it is asked for first, and each event that follows once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/reconciler/job_table.h"
#include "runtime/report/stalled_ranks.h"

namespace trireme::dashboard {

// Threads: any.
class StallBoard {
 public:
  // They outlive it.
  StallBoard(const coordinator::JobTable& table, coordinator::JobStore& store)
      : table_(table), store_(store) {}

  // What was told of the job's ranks that stand still; nothing, once its attempt has ended.
  std::vector<std::string> Of(const v1::Job& job);

 private:
  static constexpr size_t kPiece = 1000;

  void CatchUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: the disk; again at the next call.
  bool ReadFromBegin(uint64_t job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(const v1::Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const coordinator::JobTable& table_;
  coordinator::JobStore& store_;
  absl::Mutex mutex_;
  uint64_t seen_ ABSL_GUARDED_BY(mutex_) = 0;  // the last event that was looked at
  // That have been asked for and have not ended.
  std::map<uint64_t, report::StalledRanks> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::dashboard
