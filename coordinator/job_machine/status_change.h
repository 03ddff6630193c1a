// A status and the events that tell of its change.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/job_machine/job_machine.h"

namespace trireme::coordinator {

// Lives for one event of a job. What tells nobody changes nothing.
class StatusChange {
 public:
  StatusChange(const v1::JobStatus& before, int64_t now_unix_ns);

  v1::JobStatus& status() { return transition_.status; }

  // `failure`: told with the event, if this change is because of one.
  void To(v1::JobState state, std::string reason, const v1::Failure* failure = nullptr);
  void Desire(v1::JobDesiredState desired_state, const std::string& by, std::string reason);

  // Of the current attempt, which has saved it; nothing, unless it is the newest so far. That goes
  // by the attempt first: one that had to begin before a damaged checkpoint saves smaller steps, or
  // the same again, and the job gets on all the same.
  void Checkpoint(uint64_t step, int64_t alive_unix_ns);

  // Of the current attempt: at which step it went on in memory (0: it did not) and what it has done
  // since. Nothing, unless it is news.
  void Steps(uint64_t memory_step, uint64_t steps_done);
  // The same for one that has ended, whose end is an event.
  void StepsAtItsEnd(uint64_t memory_step, uint64_t steps_done);
  // Attempts go on in memory before that step (JobStatus.memory_before) from now on.
  void LeaveMemoryStep();

  // Its time counts from now on, if it does not already.
  void Count();
  void CountNoMore(int64_t until);

  // Its number is used from here on; nothing of it exists before PlanMade.
  void NextAttempt(std::string reason);

  Transition Finish() && { return std::move(transition_); }

 private:
  void GetOn();
  void ComeTo(uint64_t step);
  v1::Event& AddEvent();
  void Stamp(std::string reason);

  int64_t now_;
  Transition transition_;
};

}  // namespace trireme::coordinator
