#include "coordinator/job_machine/status_change.h"

#include <algorithm>
#include <utility>

#include "coordinator/job_machine/memory_steps.h"
#include "coordinator/job_machine/reasons.h"
#include "coordinator/job_machine/time_limit.h"

namespace trireme::coordinator {

StatusChange::StatusChange(const v1::JobStatus& before, int64_t now_unix_ns) : now_(now_unix_ns) {
  transition_.status = before;
}

void StatusChange::To(v1::JobState state, std::string reason, const v1::Failure* failure) {
  v1::JobStatus& now = status();
  v1::JobStateChanged& told = *AddEvent().mutable_state_changed();
  told.set_from(now.state());
  told.set_to(state);
  told.set_reason(reason);
  if (failure != nullptr) *told.mutable_failure() = *failure;
  now.set_state(state);
  if (state != v1::JOB_RECOVERING) now.clear_retry_at_unix_ns();
  Stamp(std::move(reason));
}

void StatusChange::Desire(v1::JobDesiredState desired_state, const std::string& by,
                          std::string reason) {
  v1::JobStatus& now = status();
  now.set_desired_state(desired_state);
  now.set_desired_by(NameOf(by));
  v1::JobDesiredStateChanged& told = *AddEvent().mutable_desired_state_changed();
  told.set_desired_state(desired_state);
  told.set_by(now.desired_by());
  Stamp(std::move(reason));
}

void StatusChange::Checkpoint(uint64_t step, int64_t alive_unix_ns) {
  v1::JobStatus& now = status();
  const bool first = now.checkpoint_attempt() != now.attempt();
  if (step == 0 || (!first && step <= now.checkpoint_step())) return;
  if (first) now.set_step_before_attempt(now.checkpoint_step());
  now.set_checkpoint_step(step);
  now.set_checkpoint_attempt(now.attempt());
  GetOn();
  // So long it has lived, whatever is known of it later.
  if (const int64_t since = now.counts_since_unix_ns(); since != 0) {
    const int64_t until = std::max(since, std::min(alive_unix_ns, now_));
    CountNoMore(until);
    now.set_counts_since_unix_ns(until);
  }
  if (step > now.furthest_step()) {
    now.set_furthest_step(step);
    now.clear_setbacks();
  }
  AddEvent().mutable_checkpointed()->set_step(step);
  ComeTo(step);
}

void StatusChange::Steps(uint64_t memory_step, uint64_t steps_done) {
  v1::JobStatus& now = status();
  if (memory_step != 0 && now.memory_step() == 0) {
    if (GoesOnInMemory(memory_step, now)) {
      GetOn();
      now.clear_setbacks();
    }
    AddEvent().mutable_went_on_in_memory()->set_step(memory_step);
    ComeTo(memory_step);
  }
  if (now.memory_before() != 0 && steps_done > now.memory_before()) ComeTo(steps_done);
}

void StatusChange::StepsAtItsEnd(uint64_t memory_step, uint64_t steps_done) {
  Steps(memory_step, steps_done);
  ComeTo(steps_done);
}

void StatusChange::LeaveMemoryStep() {
  AddEvent().mutable_memory_step_left()->set_step(status().memory_before());
}

void StatusChange::Count() {
  if (status().counts_since_unix_ns() == 0) {
    status().set_counts_since_unix_ns(std::max<int64_t>(1, now_));
  }
}

void StatusChange::CountNoMore(int64_t until) {
  status().set_used_ns(UsedNs(status(), std::min(until, now_)));
  status().clear_counts_since_unix_ns();
}

void StatusChange::NextAttempt(std::string reason) {
  status().set_attempt(status().attempt() + 1);
  status().clear_memory_step();
  status().clear_failure();
  status().clear_exit_code();
  To(v1::JOB_PLANNING, std::move(reason));
}

// An attempt that is lost has failed after it, any other one has not failed yet.
void StatusChange::GetOn() {
  status().set_failures(status().state() == v1::JOB_RECOVERING ? 1 : 0);
}

void StatusChange::ComeTo(uint64_t step) {
  const uint64_t used_again = GetsBeyond(step, status());
  if (used_again == 0) return;
  v1::MemoryStepLeft& told = *AddEvent().mutable_memory_step_left();
  told.set_step(used_again);
  told.set_over(true);
}

v1::Event& StatusChange::AddEvent() {
  transition_.changed = true;
  v1::Event& event = transition_.events.emplace_back();
  event.set_attempt(status().attempt());
  return event;
}

void StatusChange::Stamp(std::string reason) {
  status().set_reason(std::move(reason));
  status().set_changed_unix_ns(now_);
}

}  // namespace trireme::coordinator
