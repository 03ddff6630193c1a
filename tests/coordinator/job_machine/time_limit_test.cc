// What counts towards a job's time limit, and what becomes of a job that has used it up.
#include "coordinator/job_machine/time_limit.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/coordinator/job_machine/story.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kHour = 3600 * kStorySecond;

RetryPolicy TwoHours() {
  RetryPolicy policy;
  policy.time_limit = std::chrono::hours(2);
  return policy;
}

int64_t Used(const Story& job) { return UsedNs(job.status(), job.now()); }

TEST_CASE(
    "time limit: it counts from launch to end and neither in the queue nor between attempts") {
  Story job(TwoHours());
  job.Wait(5 * kHour);
  job.Happens(NodesAllocated{});
  job.Wait(kHour);
  CHECK(Used(job) == 0);
  job.Happens(PlanMade{1});
  job.Wait(60 * kStorySecond);
  job.Happens(AllRanksRun{1});
  job.Wait(600 * kStorySecond);
  CHECK(Used(job) == 660 * kStorySecond);
  job.Dies();
  job.Wait(kHour);
  CHECK(Used(job) == 660 * kStorySecond);
  CHECK(TimeIsUpUnixNs(job.status(), std::chrono::hours(2)) == 0);
  job.Runs();
  CHECK(TimeIsUpUnixNs(job.status(), std::chrono::hours(2)) ==
        job.now() + 2 * kHour - 660 * kStorySecond);
  // Over a pause too.
  job.Wait(40 * kStorySecond);
  job.Happens(PauseAsked{"ann"});
  job.Wait(300 * kStorySecond);
  job.Happens(AttemptEnded{2, 75, {}, 7});
  job.Happens(ResumeAsked{"ann"});
  CHECK(Used(job) == 1000 * kStorySecond);
}

TEST_CASE("time limit: what waits in another queue does not count before its ranks run") {
  Story job(TwoHours());
  job.Happens(NodesAllocated{});
  job.Happens(PlanMade{1});
  job.Wait(2 * kStorySecond);
  job.Happens(LaunchQueued{1});
  REQUIRE(job.told().size() == 1);
  CHECK(job.status().reason() ==
        "attempt 1 waits in another queue, which does not count towards its time limit");
  job.Wait(9 * kHour);
  CHECK(Used(job) == 0);
  job.Happens(LaunchQueued{1});
  CHECK(job.told().empty());
  job.Happens(TimeIsUp{});
  CHECK(job.status().state() == v1::JOB_LAUNCHING);
  job.Happens(AllRanksRun{1});
  job.Wait(kHour);
  CHECK(Used(job) == kHour);
  job.Happens(LaunchQueued{1});
  CHECK(Used(job) == kHour);
}

TEST_CASE("time limit: a job that has used it up stops with a checkpoint and has then failed") {
  Story job(TwoHours());
  job.Runs();
  job.Wait(2 * kHour - 1);
  job.Happens(TimeIsUp{});
  CHECK(job.told().empty());
  job.Wait(1);
  job.Happens(TimeIsUp{});
  CHECK(job.status().state() == v1::JOB_PAUSING);
  CHECK(job.status().desired_state() == v1::JOB_DESIRED_RUN);
  CHECK(job.status().reason() == "has reached its time limit of 2 h; stops at the next step");
  CHECK(ConsequencesOf(job.status()).attempt == v1::ATTEMPT_STOP);
  // Said once.
  job.Happens(TimeIsUp{});
  CHECK(job.told().empty());
  job.Wait(600 * kStorySecond);
  job.Happens(AttemptEnded{1, 75, {}, 40});
  CHECK(job.status().state() == v1::JOB_FAILED);
  CHECK(job.status().reason() == "reached its time limit of 2 h; its newest checkpoint is step 40");
  CHECK(job.status().exit_code() == 4);
  CHECK(job.status().failure().headline() == "reached its time limit of 2 h");
  CHECK(job.status().failure().rank() == -1);
  CHECK(job.status().failure().next_action() ==
        "raise resources.time_limit_seconds and go on from the checkpoint as another job");
  CHECK(job.status().failures() == 0);
}

TEST_CASE("time limit: it ends a job also where its last attempt could not save") {
  Story job(TwoHours());
  job.Runs();
  job.Wait(2 * kHour);
  job.Happens(TimeIsUp{});
  job.Dies();
  CHECK(job.status().state() == v1::JOB_FAILED);
  CHECK(job.status().reason() ==
        "reached its time limit of 2 h; it has saved no checkpoint; its last attempt failed: rank "
        "3 died");
  // Found at the end of an attempt, before the timer came.
  Story late(TwoHours());
  late.Runs();
  late.Dies();
  late.Runs();
  late.Wait(3 * kHour);
  late.Dies(9);
  CHECK(late.status().state() == v1::JOB_FAILED);
  CHECK(late.status().failures() == 0);
  // Lost on the way.
  Story lost(TwoHours());
  lost.Runs();
  lost.Wait(2 * kHour);
  lost.Happens(TimeIsUp{});
  lost.Happens(AttemptLost{1, "n2 is lost"});
  lost.Dies(3);
  CHECK(lost.status().state() == v1::JOB_FAILED);
  CHECK(lost.status().reason().find("time limit of 2 h; its newest checkpoint is step 3") !=
        std::string::npos);
}

TEST_CASE("time limit: who pauses or cancels a job that stops for it gets that") {
  Story job(TwoHours());
  job.Runs();
  job.Wait(2 * kHour);
  job.Happens(TimeIsUp{});
  job.Happens(PauseAsked{"ann"});
  job.Happens(AttemptEnded{1, 75, {}, 40});
  CHECK(job.status().state() == v1::JOB_PAUSED);
  const auto resumed = Apply(job.status(), ResumeAsked{"ann"}, TwoHours(), job.now());
  CHECK(resumed.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(resumed.status().message()) ==
        "job has used up its time limit of 2 h; go on from its checkpoint as another job, with a "
        "larger resources.time_limit_seconds");
  job.Happens(CancelAsked{"ann"});
  CHECK(job.status().state() == v1::JOB_CANCELLED);
}

TEST_CASE("time limit: a clock that is set moves what counts with it") {
  Story job(TwoHours());
  job.Runs();
  job.Wait(kHour);
  v1::JobStatus status = job.status();
  FollowClock(100 * kHour, status);
  CHECK(UsedNs(status, job.now() + 100 * kHour) == kHour);
  status = job.status();
  FollowClock(-100 * kStorySecond, status);
  CHECK(UsedNs(status, job.now() - 100 * kStorySecond) == kHour);
  // By a clock of before the launch nothing has passed.
  CHECK(UsedNs(job.status(), job.now() - 50 * kHour) == 0);
  // Not even to where counting would look as if it had ended.
  FollowClock(-200000 * kHour, status);
  CHECK(status.counts_since_unix_ns() != 0);
  v1::JobStatus idle;
  FollowClock(kHour, idle);
  CHECK(idle.counts_since_unix_ns() == 0);
}

TEST_CASE("time limit: without one nothing is counted") {
  Story job;
  job.Runs();
  job.Wait(kHour);
  job.Happens(TimeIsUp{});
  CHECK(job.told().empty());
  CHECK(job.status().counts_since_unix_ns() == 0);
  v1::JobSpec spec;
  CHECK(TimeLimitOf(spec).count() == 0);
  spec.mutable_resources()->set_time_limit_seconds(1.5);
  CHECK(TimeLimitOf(spec) == std::chrono::milliseconds(1500));
}

}  // namespace
}  // namespace trireme::coordinator
