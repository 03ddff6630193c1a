// plan.pb of an attempt for its ranks on this node, read on a thread of the run folder's file
// system, which may hang: once for all of them, and forgotten when each has had it, for a plan of
// thousands of ranks is large. A rank that asks once more has it read again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/keeper/seat.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::keeper {

// Threads: any. Held by shared_ptr: a read that hangs may come to its end when the rest is gone.
class PlanShelf : public std::enable_shared_from_this<PlanShelf> {
 public:
  using Answer = std::function<void(const absl::StatusOr<std::shared_ptr<const v1::Plan>>& plan)>;

  // Never blocks. `answer` gets the plan, or why there is none, once: before this returns, or from
  // a thread of `disks` before the end of those. FailedPrecondition: it is another attempt's;
  // DeadlineExceeded, Unavailable: the disk, which is named; ResourceExhausted: so many wait for
  // one read that some must have left. A rank asks again after either.
  void Get(const Seat& seat, coordinator::DiskCalls& disks, const Answer& answer);

 private:
  void Put(uint32_t ranks_here, absl::StatusOr<std::shared_ptr<const v1::Plan>> plan);

  absl::Mutex mutex_;
  std::shared_ptr<const v1::Plan> plan_ ABSL_GUARDED_BY(mutex_);
  size_t taken_ ABSL_GUARDED_BY(mutex_) = 0;  // by so many ranks
  // Not empty: a read is under way.
  std::vector<Answer> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::keeper
