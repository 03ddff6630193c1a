// What one user may take of the coordinator, and what each has taken. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// Of each user; 0: no cap. The third, of ranks that run, is the scheduler's (SchedulingPolicy).
struct UserCaps {
  uint64_t queued_jobs = 0;  // that hold no allocation and have not ended: they wait or are paused
  uint64_t spec_bytes = 0;   // of all jobs that have not ended, as they are stored
};

// Kept in step with the jobs by File. Jobs without caps (Job.uncapped) count for nobody.
class UserUsage {
 public:
  // `before`: as it was filed; null: not yet.
  void File(const v1::Job* before, const v1::Job& job);
  // ResourceExhausted, with what to do, where `job` of that owner would be one too many.
  absl::Status MayAdd(const v1::Job& job, const UserCaps& caps) const;

 private:
  struct Usage {
    uint64_t queued_jobs = 0;
    uint64_t spec_bytes = 0;
  };
  std::map<std::string, Usage> users_;  // of whom anything counts
};

}  // namespace trireme::coordinator
