// What follows from a status alone: the table in docs/coordinator.md.
#include "coordinator/job_machine/job_machine.h"

namespace trireme::coordinator {
namespace {

v1::AttemptDesiredState AttemptDesiredStateOf(const v1::JobStatus& status) {
  if (!status.attempt_live()) return v1::ATTEMPT_DESIRED_UNSPECIFIED;
  switch (status.state()) {
    case v1::JOB_LAUNCHING:
    case v1::JOB_RUNNING:
      return status.desired_state() == v1::JOB_DESIRED_RUN ? v1::ATTEMPT_RUN : v1::ATTEMPT_STOP;
    case v1::JOB_PAUSING:
      return v1::ATTEMPT_STOP;
    default:
      return v1::ATTEMPT_KILL;
  }
}

bool HoldsAllocation(v1::JobState state) {
  switch (state) {
    case v1::JOB_PLANNING:
    case v1::JOB_LAUNCHING:
    case v1::JOB_RUNNING:
    case v1::JOB_PAUSING:
    case v1::JOB_RECOVERING:
      return true;
    default:
      return false;
  }
}

}  // namespace

Consequences ConsequencesOf(const v1::JobStatus& status) {
  Consequences follows;
  follows.wants_allocation =
      status.state() == v1::JOB_PENDING && status.desired_state() == v1::JOB_DESIRED_RUN;
  follows.wants_plan = status.state() == v1::JOB_PLANNING;
  follows.holds_allocation = status.attempt_live() || HoldsAllocation(status.state());
  follows.attempt = AttemptDesiredStateOf(status);
  if (status.state() == v1::JOB_RECOVERING && !status.attempt_live()) {
    follows.timer_unix_ns = status.retry_at_unix_ns();
  }
  return follows;
}

bool RetryIsDue(const v1::JobStatus& status, const RetryPolicy& policy, int64_t now_unix_ns) {
  const int64_t wait_ns = status.retry_at_unix_ns() - now_unix_ns;
  return wait_ns <= 0 || wait_ns > std::chrono::nanoseconds(policy.longest_delay).count();
}

v1::JobStatus InitialStatus(int64_t now_unix_ns) {
  v1::JobStatus status;
  status.set_state(v1::JOB_PENDING);
  status.set_reason("submitted; waits for resources");
  status.set_changed_unix_ns(now_unix_ns);
  return status;
}

bool HasEnded(v1::JobState state) {
  return state == v1::JOB_COMPLETED || state == v1::JOB_FAILED || state == v1::JOB_CANCELLED;
}

std::string StateWord(v1::JobState state) {
  switch (state) {
    case v1::JOB_PENDING:
      return "pending";
    case v1::JOB_PLANNING:
      return "planning";
    case v1::JOB_LAUNCHING:
      return "launching";
    case v1::JOB_RUNNING:
      return "running";
    case v1::JOB_RECOVERING:
      return "recovering";
    case v1::JOB_PAUSING:
      return "pausing";
    case v1::JOB_PAUSED:
      return "paused";
    case v1::JOB_COMPLETED:
      return "completed";
    case v1::JOB_FAILED:
      return "failed";
    case v1::JOB_CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

}  // namespace trireme::coordinator
