// What a daemon does about a store that may be damaged: whoever comes upon it tells, and the check
// of all of it is tried again until it has been made.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "coordinator/job_store/job_store.h"

namespace trireme::coordinator {

// All of `store`. `damaged` gets each DataLoss that a read, a change or a check ends with, on the
// thread of that call; the next opening checks all of it (NoteDamage).
std::unique_ptr<JobStore> DamageWatch(std::unique_ptr<JobStore> store,
                                      std::function<void(const absl::Status& why)> damaged);

// Of one thread.
class CheckTurns {
 public:
  using Clock = std::chrono::steady_clock;
  // `failed`: why it could not be checked this time.
  CheckTurns(JobStore& store, std::function<void(const absl::Status& why)> failed)
      : store_(store), failed_(std::move(failed)) {}

  // Checks all of the store if that is due. Gives the time of the next turn, 0: it has been made,
  // found damage, or was stopped.
  int64_t Turn(int64_t now_unix_ns, Clock::time_point now = Clock::now());

 private:
  JobStore& store_;
  const std::function<void(const absl::Status& why)> failed_;
  bool over_ = false;
  Clock::time_point due_{};
};

}  // namespace trireme::coordinator
