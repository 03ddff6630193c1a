// Which ranks of which jobs stand still, for lists of jobs that are asked for once a second: the
// events of a job are read when it is asked for first, and each event that follows once.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/calls/store_reads.h"
#include "runtime/report/stalled_ranks.h"

namespace trireme::dashboard {

// For a disk. A page asks once a second, and there are a few threads for all of them.
inline constexpr std::chrono::milliseconds kDiskTime(2000);

// Threads: any.
class StallBoard {
 public:
  using Texts = std::vector<std::string>;

  // They outlive it.
  explicit StallBoard(coordinator::StoreReads& reads) : reads_(reads), table_(reads.table()) {}

  // What was told of each job's ranks that stand still; nothing, once its attempt has ended. Blocks
  // where events of some are to be read, all at once; a disk that does not answer within kDiskTime
  // leaves these without, until the next call.
  std::vector<Texts> Of(std::span<const v1::Job> jobs);

 private:
  using Ranks = std::map<uint64_t, report::StalledRanks>;  // by job

  void ReadUnknown(std::span<const v1::Job> jobs);
  // To the newest event, or begins anew where so many have come that the table has not all.
  void CatchUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the table's events after `from` up to `to` tell of them; who has ended is left out. False:
  // it does not have them any more.
  bool Follow(Ranks& ranks, uint64_t from, uint64_t to) const;

  coordinator::StoreReads& reads_;
  const coordinator::JobTable& table_;
  absl::Mutex mutex_;
  uint64_t seen_ ABSL_GUARDED_BY(mutex_) = 0;  // the last event that was looked at
  // That have been asked for and have not ended.
  Ranks jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::dashboard
