// The job machine: what becomes of a job when something happens to it. Pure; the table of its
// transitions is docs/coordinator.md. Whoever calls it stores the result before acting on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "trireme/v1/agent.pb.h"
#include "trireme/v1/event.pb.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// What may happen. Those with an attempt change nothing unless it is the current one.
struct NodesAllocated {};  // the scheduler has found an allocation
struct PlanMade {
  uint32_t attempt = 0;
};
// There is none: for good (base::kBadInput, kDoesNotFit), or this time (any other exit code).
struct PlanRefused {
  uint32_t attempt = 0;
  int exit_code = 2;  // base::ExitCode
  std::string why;
};
struct AllRanksRun {
  uint32_t attempt = 0;
};
// The launcher's own queue, as Slurm's, holds it: it has no ranks yet.
struct LaunchQueued {
  uint32_t attempt = 0;
};
// The job has used up RetryPolicy::time_limit.
struct TimeIsUp {};
struct CheckpointSeen {
  uint32_t attempt = 0;  // that has saved it
  uint64_t step = 0;     // 0: none yet
  // Why saves have failed since, empty: they have not; nullopt: not known.
  std::optional<std::string> fails = std::nullopt;
  int64_t alive_unix_ns = INT64_MAX;  // as of AttemptEnded
};
// What its rank 0 has last reported.
struct StepsSeen {
  uint32_t attempt = 0;
  uint64_t memory_step = 0;  // that it went on at in memory; 0: it did not
  uint64_t steps_done = 0;   // of the job
};
// Nothing is left of the attempt on any node.
struct AttemptEnded {
  uint32_t attempt = 0;
  int exit_code = 0;
  v1::Failure failure;           // empty if it ended in order
  uint64_t checkpoint_step = 0;  // of the newest that it has saved; 0: none
  // Until when it is known to have lived, which is what it has used of its time limit; 0: not known
  // beyond its newest checkpoint.
  int64_t alive_unix_ns = INT64_MAX;
  bool never_started = false;  // its node could not, and nothing of it has run
  // That was to launch it; of an exit code kNoRoomHere that which has no room for its ranks.
  std::string node = {};
  uint64_t memory_step = 0;  // as of StepsSeen
  uint64_t steps_done = 0;
  // With never_started: it could start nothing else of late, and no other node can be used.
  bool no_other_node = false;
};
// A node of the attempt is lost for good: it will be killed on the others.
struct AttemptLost {
  uint32_t attempt = 0;
  std::string why;
};
// The newest in the run folder is one that this store has never started: its number, or more, is
// used up (docs/adr/0018).
struct UnknownAttemptSeen {
  uint32_t attempt = 0;  // that is being planned
  uint32_t newest = 0;
  bool over = false;  // nothing is left of that one
  bool done = false;  // over, and it has done what the job was to do
  std::string why;    // people are told it, while it is not over
};
// There is no plan yet, for the disk of the run folder does not answer, or refuses: it comes when
// that does not any more.
struct PlanHeldUp {
  uint32_t attempt = 0;
  std::string why;  // people are told it
};
// A node that was adopted has ranks of an attempt of this job that this store has never started.
struct AttemptFound {
  uint32_t attempt = 0;
  std::string node;
};
struct RetryDue {
  // False: a node of its allocation is drained or lost. The job then gives it back and waits for
  // others instead of starting where it cannot run; also while it is planned.
  bool places_usable = true;
  // Its node could not start the attempt before, and another one may: likewise.
  bool elsewhere = false;
};
struct PauseAsked {
  std::string by;
};
struct ResumeAsked {
  std::string by;
};
struct CancelAsked {
  std::string by;
};
using JobEvent =
    std::variant<NodesAllocated, PlanMade, PlanRefused, AllRanksRun, LaunchQueued, TimeIsUp,
                 CheckpointSeen, StepsSeen, AttemptEnded, AttemptLost, UnknownAttemptSeen,
                 PlanHeldUp, AttemptFound, RetryDue, PauseAsked, ResumeAsked, CancelAsked>;

struct RetryPolicy {
  // In a row without a newer checkpoint or step in memory: then the job has failed.
  uint32_t max_failures = 5;
  std::chrono::milliseconds first_delay{1000};  // doubled with each failure
  std::chrono::milliseconds longest_delay{60000};
  // Times max_failures: attempts that failed and had saved nothing beyond the one before, since one
  // has come beyond all; likewise attempts in a row that their nodes could not start (TriesInVain).
  // Where a disk spoils each newest checkpoint, a job goes back again and again, and each attempt
  // saves something.
  uint32_t setbacks = 4;
  // Of the job, for all its attempts together (time_limit.h); 0: none.
  std::chrono::nanoseconds time_limit{0};
  // Whether a node without room for an attempt (base::kNoRoomHere) is left for another one, or for
  // later. Else whoever waits for the job is to make room: it has failed.
  bool room_comes = true;
};

struct Transition {
  v1::JobStatus status;
  // To be stored with it, in order; `sequence`, `job_id` and `time_unix_ns` are the store's to
  // fill.
  std::vector<v1::Event> events;
  bool changed = false;  // false: the event meant nothing here; status is as it was
};

// A new job.
v1::JobStatus InitialStatus(int64_t now_unix_ns);

// FailedPrecondition, with a sentence for people, if a request (pause, resume, cancel) is not
// possible in this state; a request that asks for what is so already is no error. All other events
// never fail.
absl::StatusOr<Transition> Apply(const v1::JobStatus& status, const JobEvent& event,
                                 const RetryPolicy& policy, int64_t now_unix_ns);

// What follows from a status; nothing else is remembered.
struct Consequences {
  bool wants_allocation = false;  // pending and desired to run
  bool wants_plan = false;        // of attempt `status.attempt()`
  bool holds_allocation = false;
  v1::AttemptDesiredState attempt =
      v1::ATTEMPT_DESIRED_UNSPECIFIED;  // of the nodes; unspecified: none
  int64_t timer_unix_ns = 0;            // RetryDue is due then; 0: none
};
Consequences ConsequencesOf(const v1::JobStatus& status);

// Whether the time of RetryDue has come, also where the clock was set back meanwhile.
bool RetryIsDue(const v1::JobStatus& status, const RetryPolicy& policy, int64_t now_unix_ns);
bool HasEnded(v1::JobState state);
// "pending", "running" ...
std::string StateWord(v1::JobState state);

}  // namespace trireme::coordinator
