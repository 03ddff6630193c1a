// What one user may take of the coordinator, and what each has taken. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// Of each user; 0: no cap. The third, of ranks that run, is the scheduler's (SchedulingPolicy).
struct UserCaps {
  uint64_t queued_jobs = 0;  // that hold no allocation and have not ended: they wait or are paused
  // Of all jobs that have not ended, as they are stored; and, once more, of those that have ended
  // and are listed still.
  uint64_t spec_bytes = 0;
};

// Kept in step with the jobs by File and Forget. Jobs without caps (Job.uncapped) count for nobody.
class UserUsage {
 public:
  explicit UserUsage(const UserCaps& caps) : caps_(caps) {}

  // `before`: as it was filed; null: not yet.
  void File(const v1::Job* before, const v1::Job& job);
  // An ended one, as it was filed, is no longer kept.
  void Forget(const v1::Job& job);
  // ResourceExhausted, with what to do, where `job` of that owner would be one too many.
  absl::Status MayAdd(const v1::Job& job) const;
  // Somebody whose ended jobs have more bytes of specs than the cap, and how many bytes are to be
  // forgotten, so that not each job that ends is one to be forgotten. Nobody: an empty name.
  std::pair<std::string, uint64_t> Beyond() const;

 private:
  struct Usage {
    uint64_t queued_jobs = 0;
    uint64_t spec_bytes = 0;
    uint64_t ended_bytes = 0;
  };
  // Takes the user out of what it need not know.
  void Tidy(const std::string& user);
  void AddEnded(const v1::Job& job, bool more);

  const UserCaps caps_;
  std::map<std::string, Usage> users_;  // of whom anything counts
  std::set<std::string> beyond_;        // their ended jobs are beyond the cap
};

}  // namespace trireme::coordinator
