// Which ranks of which jobs stand still, for lists of jobs that are asked for once a second: the
// events of a job are read when it is asked for first, and each event that follows once.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
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

  // They outlive it. `time`: of a caller, and of a read.
  explicit StallBoard(coordinator::StoreReads& reads, std::chrono::milliseconds time = kDiskTime);

  // What was told of each job's ranks that stand still; nothing, once its attempt has ended. Where
  // events of some are to be read it blocks for `time` at most, or not at all: one read at a time
  // is under way, whoever asks. It ends when it has taken `time` itself, however much is left;
  // these are without until later calls have read on.
  std::vector<Texts> Of(std::span<const v1::Job> jobs);

 private:
  struct Known {
    report::StalledRanks ranks;
    uint64_t read_to = 0;  // the last event that was read of the store
    bool whole = false;    // nothing is left there
  };
  using Jobs = std::map<uint64_t, Known>;
  class Read;
  class Shelf;

  void ReadUnknown(std::span<const v1::Job> jobs);
  // With what was read of them so far.
  Jobs UnknownOf(std::span<const v1::Job> jobs) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a read has left there, if one has.
  void TakeFromShelf() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To the newest event, or begins anew where so many have come that the table has not all.
  void CatchUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the table's events after `from` up to `to` tell of them; who has ended is left out. False:
  // it does not have them any more.
  bool Follow(Jobs& jobs, uint64_t from, uint64_t to) const;

  coordinator::StoreReads& reads_;
  const coordinator::JobTable& table_;
  const std::chrono::milliseconds time_;
  const std::shared_ptr<Shelf> shelf_;  // a read that is left behind has it too
  absl::Mutex mutex_;
  uint64_t seen_ ABSL_GUARDED_BY(mutex_) = 0;  // the last event that was looked at
  // That have been asked for and have not ended.
  Jobs jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::dashboard
