// One operator() per event. Each either finds that the event means nothing in this state and leaves
// everything as it was, or changes the status through StatusChange, which keeps status and events
// in step.
#include "coordinator/job_machine/job_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/job_machine/memory_steps.h"
#include "coordinator/job_machine/reasons.h"
#include "coordinator/job_machine/status_change.h"
#include "coordinator/job_machine/time_limit.h"
#include "coordinator/job_machine/unable_nodes.h"
#include "runtime/base/duration_text.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

int64_t DelayNs(const RetryPolicy& policy, uint32_t failures) {
  auto delay = policy.first_delay;
  for (uint32_t i = 1; i < failures && delay < policy.longest_delay; ++i) delay *= 2;
  delay = std::clamp(delay, std::chrono::milliseconds(0), policy.longest_delay);
  return std::chrono::nanoseconds(delay).count();
}

std::string Attempt(const v1::JobStatus& status) {
  return fmt::format("attempt {}", status.attempt());
}

// By its own error, such as a loss that is not finite: no signal, no lost peer, no node.
bool FailedByItself(const AttemptEnded& end) {
  const bool error = end.exit_code == base::kInternal || end.exit_code == base::kJobFailed;
  return error && end.failure.own();
}

// The same would follow again.
bool IsForGood(int exit_code) {
  return exit_code == base::kBadInput || exit_code == base::kDoesNotFit;
}

// Another node may fare better, or this one later.
bool IsOfItsNode(const AttemptEnded& event) {
  return event.never_started || event.exit_code == base::kNoRoomHere;
}

class Machine {
 public:
  Machine(const v1::JobStatus& before, const RetryPolicy& policy, int64_t now_unix_ns)
      : before_(before), policy_(policy), now_(now_unix_ns), change_(before, now_unix_ns) {}

  absl::Status operator()(const NodesAllocated&) {
    if (state() != v1::JOB_PENDING || desired_state() != v1::JOB_DESIRED_RUN)
      return absl::OkStatus();
    change_.NextAttempt(
        fmt::format("has its allocation; attempt {} is planned", before_.attempt() + 1));
    return absl::OkStatus();
  }

  absl::Status operator()(const PlanMade& event) {
    if (state() != v1::JOB_PLANNING || !IsCurrent(event.attempt)) return absl::OkStatus();
    change_.status().set_attempt_live(true);
    if (HasTimeLimit()) change_.Count();
    change_.To(v1::JOB_LAUNCHING, Attempt(before_) + " starts");
    return absl::OkStatus();
  }

  absl::Status operator()(const PlanRefused& event) {
    if (state() != v1::JOB_PLANNING || !IsCurrent(event.attempt)) return absl::OkStatus();
    std::string why = OneLine(event.why);
    if (why.empty()) why = "no reason was given";
    v1::Failure failure;
    failure.set_rank(-1);
    failure.set_headline(why);
    if (IsForGood(event.exit_code)) {
      Fail("no plan can be made: " + why, event.exit_code, failure);
    } else {
      Record(event.exit_code, failure);
      CountFailure();
      RecoverOrFail();
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const AllRanksRun& event) {
    if (state() != v1::JOB_LAUNCHING || !IsCurrent(event.attempt)) return absl::OkStatus();
    if (HasTimeLimit()) change_.Count();
    ForgetUnstarted(change_.status());
    // Where a cancel is on its way, the reason stays that.
    change_.To(v1::JOB_RUNNING, desired_state() == v1::JOB_DESIRED_RUN
                                    ? AtWork(Attempt(before_), "")
                                    : before_.reason());
    return absl::OkStatus();
  }

  absl::Status operator()(const LaunchQueued& event) {
    const bool counts = before_.counts_since_unix_ns() != 0;
    if (state() != v1::JOB_LAUNCHING || !IsCurrent(event.attempt) || !counts) {
      return absl::OkStatus();
    }
    change_.status().clear_counts_since_unix_ns();
    change_.To(v1::JOB_LAUNCHING,
               desired_state() == v1::JOB_DESIRED_RUN
                   ? Attempt(before_) +
                         " waits in another queue, which does not count towards its time limit"
                   : before_.reason());
    return absl::OkStatus();
  }

  absl::Status operator()(const TimeIsUp&) {
    const int64_t due = TimeIsUpUnixNs(before_, policy_.time_limit);
    const bool at_work =
        state() == v1::JOB_LAUNCHING || state() == v1::JOB_RUNNING || state() == v1::JOB_PAUSING;
    if (!at_work || desired_state() != v1::JOB_DESIRED_RUN || due == 0 || now_ < due) {
      return absl::OkStatus();
    }
    // What the stop takes is not the job's.
    change_.CountNoMore(INT64_MAX);
    change_.To(v1::JOB_PAUSING, fmt::format("has reached its time limit of {}; stops at the next "
                                            "step",
                                            base::DurationText(policy_.time_limit)));
    return absl::OkStatus();
  }

  absl::Status operator()(const CheckpointSeen& event) {
    if (!before_.attempt_live() || !IsCurrent(event.attempt)) return absl::OkStatus();
    change_.Checkpoint(event.step, event.alive_unix_ns);
    if (event.fails && state() == v1::JOB_RUNNING && desired_state() == v1::JOB_DESIRED_RUN) {
      Saves(OneLine(*event.fails));
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const StepsSeen& event) {
    if (!before_.attempt_live() || !IsCurrent(event.attempt)) return absl::OkStatus();
    change_.Steps(event.memory_step, event.steps_done);
    return absl::OkStatus();
  }

  absl::Status operator()(const AttemptEnded& event) {
    if (!before_.attempt_live() || !IsCurrent(event.attempt)) return absl::OkStatus();
    change_.CountNoMore(event.alive_unix_ns);
    change_.StepsAtItsEnd(event.memory_step, event.steps_done);
    change_.Checkpoint(event.checkpoint_step, event.alive_unix_ns);
    change_.status().set_attempt_live(false);
    if (!IsOfItsNode(event)) ForgetUnstarted(change_.status());
    if (state() == v1::JOB_RECOVERING) {
      LostAttemptGone();
    } else {
      Ended(event);
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const AttemptLost& event) {
    const bool at_work =
        state() == v1::JOB_LAUNCHING || state() == v1::JOB_RUNNING || state() == v1::JOB_PAUSING;
    if (!at_work || !IsCurrent(event.attempt)) return absl::OkStatus();
    std::string why = OneLine(event.why);
    if (why.empty()) why = "a node is lost";
    v1::Failure failure;
    failure.set_rank(-1);
    failure.set_headline(why);
    Record(base::kJobFailed, failure);
    CountFailure();
    // Its end is told later: whether that was one failure too many is judged then, for it may
    // bring a newer checkpoint.
    change_.To(
        v1::JOB_RECOVERING,
        fmt::format("{} is lost: {}; what is left of it is ended first", Attempt(before_), why),
        &change_.status().failure());
    return absl::OkStatus();
  }

  absl::Status operator()(const UnknownAttemptSeen& event) {
    if (state() != v1::JOB_PLANNING || !IsCurrent(event.attempt)) return absl::OkStatus();
    if (event.done) {
      change_.status().set_attempt(std::max(event.newest, event.attempt));
      change_.status().set_exit_code(base::kOk);
      change_.To(v1::JOB_COMPLETED,
                 fmt::format("all steps were done by {}, which is in its run folder",
                             Attempt(change_.status())));
    } else if (event.over) {
      change_.status().set_attempt(std::max(event.newest, event.attempt));
      change_.NextAttempt(fmt::format("attempt {} is planned: its run folder has others up to {}",
                                      change_.status().attempt() + 1, event.newest));
    } else if (const std::string why = OneLine(event.why); why != before_.reason()) {
      change_.To(v1::JOB_PLANNING, why);
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const PlanHeldUp& event) {
    if (state() != v1::JOB_PLANNING || !IsCurrent(event.attempt)) return absl::OkStatus();
    const std::string why = "its plan waits: " + OneLine(event.why);
    if (why != before_.reason()) change_.To(v1::JOB_PLANNING, why);
    return absl::OkStatus();
  }

  absl::Status operator()(const AttemptFound& event) {
    const bool known =
        event.attempt < before_.attempt() || (IsCurrent(event.attempt) && before_.attempt_live());
    if (HasEnded(state()) || known) return absl::OkStatus();
    v1::JobStatus& now = change_.status();
    now.set_attempt(event.attempt);
    now.set_attempt_live(true);
    now.clear_memory_step();
    now.clear_failure();
    now.clear_exit_code();
    now.clear_failures();
    if (HasTimeLimit()) change_.Count();
    change_.To(desired_state() == v1::JOB_DESIRED_PAUSE ? v1::JOB_PAUSING : v1::JOB_LAUNCHING,
               fmt::format("{} was found at work on node {} and goes on", Attempt(now),
                           OneLine(event.node)));
    return absl::OkStatus();
  }

  absl::Status operator()(const RetryDue& event) {
    const bool planned = state() == v1::JOB_PLANNING && !before_.attempt_live();
    if (planned && !event.places_usable) {
      change_.To(v1::JOB_PENDING,
                 "waits for another allocation: a node of its own is drained or lost");
      return absl::OkStatus();
    }
    if (state() != v1::JOB_RECOVERING || before_.attempt_live() ||
        desired_state() != v1::JOB_DESIRED_RUN || !RetryIsDue(before_, policy_, now_)) {
      return absl::OkStatus();
    }
    if (event.places_usable && event.elsewhere) {
      change_.To(v1::JOB_PENDING,
                 fmt::format("waits for another node: {} could not start it", UnableText(before_)));
    } else if (event.places_usable) {
      change_.NextAttempt(fmt::format("attempt {} is planned, after a failure: {}",
                                      before_.attempt() + 1,
                                      EndingOf(before_.exit_code(), before_.failure())));
    } else {
      change_.To(v1::JOB_PENDING,
                 "waits for another allocation: a node of its own is drained or lost");
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const PauseAsked& event) {
    if (absl::Status refused = RefuseUnlessWanted("paused"); !refused.ok()) return refused;
    if (desired_state() == v1::JOB_DESIRED_PAUSE) return absl::OkStatus();
    if (!before_.attempt_live()) {
      change_.Desire(v1::JOB_DESIRED_PAUSE, event.by, "");
      change_.To(v1::JOB_PAUSED, "paused by " + NameOf(event.by));
    } else if (state() == v1::JOB_RECOVERING) {
      change_.Desire(v1::JOB_DESIRED_PAUSE, event.by,
                     fmt::format("{} asked to pause; what is left of {} is ended first",
                                 NameOf(event.by), Attempt(before_)));
    } else {
      const std::string reason = NameOf(event.by) + " asked to pause; stops at the next step";
      change_.Desire(v1::JOB_DESIRED_PAUSE, event.by, reason);
      if (state() != v1::JOB_PAUSING) change_.To(v1::JOB_PAUSING, reason);
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const ResumeAsked& event) {
    if (absl::Status refused = RefuseUnlessWanted("resumed"); !refused.ok()) return refused;
    if (desired_state() != v1::JOB_DESIRED_PAUSE) return absl::OkStatus();
    const std::string by = NameOf(event.by);
    if (state() == v1::JOB_PAUSED && TimeIsUsedUp()) {
      return absl::FailedPreconditionError(fmt::format(
          "job has used up its time limit of {}; go on from its checkpoint as another job, with a "
          "larger resources.time_limit_seconds",
          base::DurationText(policy_.time_limit)));
    }
    if (state() == v1::JOB_PAUSED) {
      change_.Desire(v1::JOB_DESIRED_RUN, event.by, "");
      // Somebody has looked at it: what failed before counts no more.
      change_.status().clear_failures();
      change_.status().clear_setbacks();
      change_.status().clear_suspect_memory_step();
      ForgetUnstarted(change_.status());
      change_.To(v1::JOB_PENDING, fmt::format("resumed by {}; waits for resources", by));
    } else {
      change_.Desire(v1::JOB_DESIRED_RUN, event.by,
                     fmt::format("{} asked to resume; {} ends first", by, Attempt(before_)));
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const CancelAsked& event) {
    if (HasEnded(state()) && state() != v1::JOB_CANCELLED) return Refuse("cancelled");
    if (desired_state() == v1::JOB_DESIRED_CANCEL) return absl::OkStatus();
    const std::string by = NameOf(event.by);
    if (before_.attempt_live()) {
      change_.Desire(v1::JOB_DESIRED_CANCEL, event.by,
                     fmt::format("{} asked to cancel; {} ends first", by, Attempt(before_)));
    } else {
      change_.Desire(v1::JOB_DESIRED_CANCEL, event.by, "");
      Cancelled("");
    }
    return absl::OkStatus();
  }

  Transition Finish() && { return std::move(change_).Finish(); }

 private:
  v1::JobState state() const { return before_.state(); }
  v1::JobDesiredState desired_state() const { return before_.desired_state(); }
  bool IsCurrent(uint32_t attempt) const { return attempt == before_.attempt(); }
  bool HasTimeLimit() const { return policy_.time_limit.count() > 0; }
  uint64_t MostInVain() const { return uint64_t{policy_.max_failures} * policy_.setbacks; }
  // Of an attempt that has ended.
  bool TimeIsUsedUp() {
    return HasTimeLimit() && change_.status().used_ns() >= policy_.time_limit.count();
  }

  // Told once, and when it is over: the job goes on as it was, but nothing of it is kept.
  void Saves(const std::string& fails) {
    std::string reason = AtWork(Attempt(before_), fails);
    if (fails.empty() ? !TellsOfFailedSaves(before_.reason()) : reason == before_.reason()) return;
    if (fails.empty()) reason += " and saves again";
    change_.To(v1::JOB_RUNNING, reason);
    change_.status().set_changed_unix_ns(before_.changed_unix_ns());
  }

  // An attempt that nobody has given up before it ended.
  void Ended(const AttemptEnded& event) {
    const std::string ending = EndingOf(event.exit_code, event.failure);
    const bool in_order = event.exit_code == base::kOk || event.exit_code == base::kCheckpointed;
    if (in_order) {
      change_.status().set_exit_code(event.exit_code);
    } else {
      Record(event.exit_code, event.failure);
    }
    const std::string then = in_order ? "" : "; its last attempt failed: " + ending;
    if (event.exit_code == base::kOk) {
      Completed();
    } else if (desired_state() == v1::JOB_DESIRED_CANCEL) {
      Cancelled(then);
    } else if (desired_state() == v1::JOB_DESIRED_PAUSE) {
      change_.To(v1::JOB_PAUSED, fmt::format("paused by {}{}", NameOf(before_.desired_by()), then));
    } else if (event.exit_code == base::kCheckpointed && !TimeIsUsedUp()) {
      change_.To(
          v1::JOB_PENDING,
          state() == v1::JOB_PAUSING
              ? fmt::format("resumed by {}; waits for resources", NameOf(before_.desired_by()))
              : Attempt(before_) + " was stopped and has saved its state; waits for resources");
    } else if (IsForGood(event.exit_code) && !HasTrained(change_.status())) {
      // What is refused although the job has trained before is a node's doing: others fill a disk,
      // and leave it, or a mount is away.
      Fail(ending, event.exit_code, event.failure);
    } else if (TimeIsUsedUp()) {
      OutOfTime(then);
    } else if (event.exit_code == base::kNoRoomHere && !policy_.room_comes) {
      Fail(ending, base::kDoesNotFit, event.failure);
    } else if (IsOfItsNode(event)) {
      StartAgain(event, ending);
    } else {
      CountFailure();
      const bool asked = state() == v1::JOB_PAUSING;
      if (!asked && FailedByItself(event) && FailsFromMemory(event.steps_done, change_.status())) {
        change_.LeaveMemoryStep();
      }
      RecoverOrFail();
    }
  }

  // What its node could not start is no failure of the job.
  void StartAgain(const AttemptEnded& event, const std::string& ending) {
    v1::JobStatus& now = change_.status();
    CountUnstarted(event.node, now);
    if (event.no_other_node) return AwaitNode(event.node, ending);
    const std::string nodes = UnableText(now);
    if (TriesInVain(now) >= MostInVain()) {
      change_.To(v1::JOB_FAILED,
                 fmt::format("{} in a row could not be started by their nodes{}: {}",
                             base::Counted(now.unstarted(), "attempt"),
                             nodes.empty() ? "" : " (" + nodes + ")", ending),
                 &now.failure());
      return;
    }
    const int64_t delay_ns = DelayNs(policy_, TriesInVain(now));
    now.set_retry_at_unix_ns(now_ + delay_ns);
    change_.To(
        v1::JOB_RECOVERING,
        fmt::format("{}, which is no failure of the job; the next attempt follows in {}{}", ending,
                    DurationText(delay_ns),
                    nodes.empty() ? "" : ", not on " + nodes + " where other nodes have room"),
        &now.failure());
  }

  // There is no other, so the job waits for it, however long: it is tried as rarely as any.
  void AwaitNode(const std::string& node, const std::string& ending) {
    v1::JobStatus& now = change_.status();
    const uint32_t tries = TriesInVain(now);
    const auto most = static_cast<uint32_t>(std::clamp<uint64_t>(MostInVain(), 2, 9) - 1);
    CountAtMost(most, now);
    const int64_t delay_ns = DelayNs(policy_, tries > most ? UINT32_MAX : tries);
    now.set_retry_at_unix_ns(now_ + delay_ns);
    const std::string why = fmt::format(
        "{}, which is no failure of the job; node {} has started nothing of late, and "
        "no other can be used, so it is tried again in {}",
        ending, OneLine(node), DurationText(delay_ns));
    change_.To(v1::JOB_RECOVERING, why, &now.failure());
  }

  // Whatever its exit code says, it was killed.
  void LostAttemptGone() {
    const std::string lost =
        "; its last attempt was lost: " + EndingOf(before_.exit_code(), before_.failure());
    if (desired_state() == v1::JOB_DESIRED_CANCEL) {
      Cancelled(lost);
    } else if (desired_state() == v1::JOB_DESIRED_PAUSE) {
      change_.To(v1::JOB_PAUSED, fmt::format("paused by {}{}", NameOf(before_.desired_by()), lost));
    } else if (TimeIsUsedUp()) {
      OutOfTime(lost);
    } else {
      RecoverOrFail();
    }
  }

  void OutOfTime(const std::string& then) {
    const uint64_t step = change_.status().checkpoint_step();
    // It was not failures that ended it.
    change_.status().clear_failures();
    change_.status().clear_setbacks();
    v1::Failure failure;
    failure.set_rank(-1);
    failure.set_headline(
        fmt::format("reached its time limit of {}", base::DurationText(policy_.time_limit)));
    failure.set_next_action(
        step > 0 ? "raise resources.time_limit_seconds and go on from the checkpoint as another job"
                 : "raise resources.time_limit_seconds, or set checkpoint.every_steps");
    Fail(fmt::format("{}; {}{}", failure.headline(),
                     step > 0 ? fmt::format("its newest checkpoint is step {}", step)
                              : "it has saved no checkpoint",
                     then),
         base::kJobFailed, failure);
  }

  void Completed() {
    change_.status().clear_failure();
    std::string reason = "all steps are done";
    if (desired_state() == v1::JOB_DESIRED_PAUSE) reason += "; it ended before it could pause";
    if (desired_state() == v1::JOB_DESIRED_CANCEL)
      reason += "; it ended before it could be cancelled";
    change_.To(v1::JOB_COMPLETED, std::move(reason));
  }

  void Cancelled(const std::string& then) {
    change_.status().set_exit_code(base::kCancelled);
    change_.To(v1::JOB_CANCELLED,
               fmt::format("cancelled by {}{}", NameOf(change_.status().desired_by()), then));
  }

  void Fail(std::string reason, int exit_code, const v1::Failure& failure) {
    Record(exit_code, failure);
    change_.To(v1::JOB_FAILED, std::move(reason), &change_.status().failure());
  }

  void Record(int exit_code, const v1::Failure& failure) {
    v1::JobStatus& now = change_.status();
    now.set_exit_code(exit_code);
    *now.mutable_failure() = failure;
    if (failure.exit_code() == 0) now.mutable_failure()->set_exit_code(exit_code);
  }

  // Of the attempt that is recorded; the next one's time follows from it.
  void CountFailure() {
    v1::JobStatus& now = change_.status();
    now.set_failures(now.failures() + 1);
    now.set_retry_at_unix_ns(now_ + DelayNs(policy_, now.failures()));
  }

  void RecoverOrFail() {
    v1::JobStatus& now = change_.status();
    const std::string ending = EndingOf(now.exit_code(), now.failure());
    const bool got_on = now.checkpoint_attempt() == now.attempt() &&
                        now.checkpoint_step() > now.step_before_attempt();
    if (!got_on) now.set_setbacks(now.setbacks() + 1);
    if (now.failures() >= policy_.max_failures) {
      change_.To(v1::JOB_FAILED,
                 fmt::format("failed {} in a row {}: {}", base::Counted(now.failures(), "time"),
                             WithoutProgress(now), ending),
                 &now.failure());
      return;
    }
    if (now.setbacks() >= MostInVain()) {
      change_.To(v1::JOB_FAILED,
                 fmt::format("{} have failed and saved nothing beyond the one before, nor beyond "
                             "step {}; the disk may spoil what they save: {}",
                             base::Counted(now.setbacks(), "attempt"), now.furthest_step(), ending),
                 &now.failure());
      return;
    }
    const int64_t delay_ns = std::max<int64_t>(0, now.retry_at_unix_ns() - now_);
    const std::string unused = UnusedStepText(now);
    change_.To(
        v1::JOB_RECOVERING,
        fmt::format("{} failed ({} of at most {} in a row), the next one follows in {}: {}{}",
                    Attempt(now), now.failures(), policy_.max_failures, DurationText(delay_ns),
                    ending, unused.empty() ? "" : "; " + unused),
        &now.failure());
  }

  absl::Status Refuse(const char* request) const {
    return absl::FailedPreconditionError(
        fmt::format("job has {}; it cannot be {}",
                    state() == v1::JOB_CANCELLED ? "been cancelled" : StateWord(state()), request));
  }
  // Of pause and resume: no way back from an end or a cancel.
  absl::Status RefuseUnlessWanted(const char* request) const {
    if (HasEnded(state())) return Refuse(request);
    if (desired_state() != v1::JOB_DESIRED_CANCEL) return absl::OkStatus();
    return absl::FailedPreconditionError(
        fmt::format("job is being cancelled; it cannot be {}", request));
  }

  const v1::JobStatus& before_;
  const RetryPolicy& policy_;
  const int64_t now_;
  StatusChange change_;
};

}  // namespace

absl::StatusOr<Transition> Apply(const v1::JobStatus& status, const JobEvent& event,
                                 const RetryPolicy& policy, int64_t now_unix_ns) {
  Machine machine(status, policy, now_unix_ns);
  if (absl::Status refused = std::visit(machine, event); !refused.ok()) return refused;
  return std::move(machine).Finish();
}

}  // namespace trireme::coordinator
