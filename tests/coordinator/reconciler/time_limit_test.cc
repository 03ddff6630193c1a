// The timer of a job's time limit, over restarts of the daemon, clocks that are set and full disks.
#include "coordinator/job_machine/time_limit.h"

#include <catch2/catch.hpp>

#include "tests/coordinator/reconciler/desk.h"
#include "tests/coordinator/reconciler/turn_each_second.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kLimit = 2 * kDeskHour;

Submission Limited() {
  Submission submission;
  submission.job.mutable_resources()->set_time_limit_seconds(7200);
  submission.job.mutable_runtime()->set_deadline_seconds(60);
  return submission;
}

// Runs from kDeskBegin on.
struct LimitedDesk : Desk {
  LimitedDesk() {
    Dial("n1");
    Submit(2, kDeskBegin, Limited());
    Launch(1, kDeskBegin);
    Report("n1", Word(1, 1, v1::ATTEMPT_RUNNING), kDeskBegin);
    REQUIRE(StateOf(1) == v1::JOB_RUNNING);
  }
};

// The turns before, so that what is said at `now` is no older: who was away for longer stood still.
void TurnUpTo(Desk& desk, int64_t now) {
  TurnEachSecond(*desk.reconciler, now - 3 * kDeskSecond, now);
}

// Its agent says that it lives.
void Lives(Desk& desk, int64_t now) {
  TurnUpTo(desk, now);
  desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_RUNNING), now);
}

TEST_CASE("time limit: the reconciler asks an attempt to stop in time and ends the job") {
  LimitedDesk desk;
  const int64_t due = kDeskBegin + kLimit;
  Lives(desk, due - 2000000);
  // Its next turn is asked for by then.
  CHECK(desk.reconciler->Tick(due - 1000000) == due);
  CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
  CHECK(desk.DesiredOn("n1") == v1::ATTEMPT_RUN);
  desk.told.clear();
  desk.reconciler->Tick(due);
  CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
  CHECK(desk.DesiredOn("n1") == v1::ATTEMPT_STOP);
  CHECK(desk.told.contains("n1"));
  // The grace of a pause: the deadline, a minute for the disk, and no step was told of.
  CHECK(desk.table.Get(1)->status().stop_grace_seconds() >= 120);
  desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 75), due + kDeskSecond);
  CHECK(desk.StateOf(1) == v1::JOB_FAILED);
  CHECK(desk.table.Get(1)->status().reason().starts_with("reached its time limit of 2 h"));
  CHECK(desk.DesiredOn("n1") == v1::ATTEMPT_DESIRED_UNSPECIFIED);
}

// A daemon that a disk or a SIGSTOP has held: what agents have said meanwhile is acted on later
// than its clock says.
TEST_CASE("time limit: a daemon that stood still ends no job that had ended with time left") {
  LimitedDesk desk;
  const int64_t last = kDeskBegin + kDeskHour;
  TurnEachSecond(*desk.reconciler, kDeskBegin, last);
  Lives(desk, last);
  const int64_t back = kDeskBegin + kLimit + 60 * kDeskSecond;
  v1::NodeReport end = Desk::Word(1, 1, v1::ATTEMPT_ENDED, 1);
  SECTION("its turn comes first, and then the report that waited") {
    desk.reconciler->Tick(back);
    CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
    desk.Report("n1", end, back);
  }
  SECTION("reports that were sent before the end come first, with turns between") {
    v1::NodeReport saved = Desk::Word(1, 1, v1::ATTEMPT_RUNNING);
    saved.mutable_attempts(0)->set_saved_step(7);
    desk.Report("n1", saved, back);
    desk.reconciler->Tick(back);
    Lives(desk, back);
    desk.reconciler->Tick(back);
    CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
    CHECK(desk.table.Get(1)->status().checkpoint_step() == 7);
    end.mutable_attempts(0)->set_saved_step(9);
    desk.Report("n1", end, back);
  }
  CHECK(desk.StateOf(1) == v1::JOB_RECOVERING);
  CHECK(desk.table.Get(1)->status().used_ns() == kDeskHour);
}

TEST_CASE("time limit: a daemon that stood still asks to stop once all agents have said it lives") {
  Desk desk;
  desk.Dial("n1");
  desk.Dial("n2");
  desk.Submit(8, kDeskBegin, Limited());
  desk.Launch(1, kDeskBegin);
  const auto lives = [&](const char* node, int64_t now) {
    desk.Report(node, Desk::Word(1, 1, v1::ATTEMPT_RUNNING), now);
  };
  lives("n1", kDeskBegin);
  lives("n2", kDeskBegin);
  REQUIRE(desk.StateOf(1) == v1::JOB_RUNNING);
  const int64_t back = kDeskBegin + kLimit + 60 * kDeskSecond;
  for (int64_t now = back; now < back + 6 * kDeskSecond; now += kDeskSecond) {
    desk.reconciler->Tick(now);
    lives("n1", now);
    if (now == back) lives("n2", now);  // of before, as far as anybody knows
    desk.reconciler->Tick(now);
    CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
  }
  const bool speaks = GENERATE(true, false);
  CAPTURE(speaks);
  int64_t now = back + 6 * kDeskSecond;
  for (; now < back + 60 * kDeskSecond; now += kDeskSecond) {
    desk.reconciler->Tick(now);
    lives("n1", now);
    if (speaks) lives("n2", now);
    desk.reconciler->Tick(now);
    // Who is silent is lost, and with a lost node time limits wait, as ever.
    CHECK(desk.StateOf(1) == (speaks ? v1::JOB_PAUSING : v1::JOB_RUNNING));
  }
  if (!speaks) lives("n2", now);
  desk.reconciler->Tick(now);
  CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
}

TEST_CASE("time limit: an agent that cannot say how the attempt fares holds it up for a lease") {
  Desk desk;
  for (const char* node : {"n1", "n2"}) desk.Dial(node);
  desk.Submit(8, kDeskBegin, Limited());
  desk.Launch(1, kDeskBegin);
  for (const char* node : {"n1", "n2"}) {
    desk.Report(node, Desk::Word(1, 1, v1::ATTEMPT_RUNNING), kDeskBegin);
  }
  REQUIRE(desk.StateOf(1) == v1::JOB_RUNNING);
  // Of which nothing counts in which it stands still.
  const int64_t lease = std::chrono::nanoseconds(ReconcilerOptions{}.lease).count();
  const int64_t still = GENERATE(int64_t{0}, 5 * kDeskSecond);
  CAPTURE(still);
  int64_t now = kDeskBegin + kLimit + 60 * kDeskSecond;
  for (int64_t heard = 0; heard < lease; heard += kDeskSecond, now += kDeskSecond + still) {
    desk.reconciler->Tick(now);
    desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_RUNNING), now);
    desk.Report("n2", Desk::Word(1, 1, v1::ATTEMPT_PHASE_UNSPECIFIED), now);  // its disk hangs
    CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
  }
  // After the last one the others say more first.
  TurnEachSecond(*desk.reconciler, now, now + (still > 0 ? 4 * kDeskSecond : 0));
  CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
}

// A lease after the first standstill that agent is waited for no longer, and the other one has
// spoken.
TEST_CASE("time limit: after each standstill the agents that can say how it fares are heard") {
  Desk desk;
  for (const char* node : {"n1", "n2"}) desk.Dial(node);
  desk.Submit(8, kDeskBegin, Limited());
  desk.Launch(1, kDeskBegin);
  for (const char* node : {"n1", "n2"}) {
    desk.Report(node, Desk::Word(1, 1, v1::ATTEMPT_RUNNING), kDeskBegin);
  }
  const auto turn = [&](int64_t now) {
    desk.reconciler->Tick(now);
    desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_RUNNING), now);
    desk.Report("n2", Desk::Word(1, 1, v1::ATTEMPT_PHASE_UNSPECIFIED), now);  // its disk hangs
  };
  const int64_t last = kDeskBegin + kLimit - 10 * kDeskSecond;
  for (int64_t now = last - 60 * kDeskSecond; now <= last; now += kDeskSecond) turn(now);
  const int64_t back = kDeskBegin + kLimit + 60 * kDeskSecond;
  desk.reconciler->Tick(back);
  CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
  SECTION("one has run on") {
    for (int64_t now = back; now < back + 3 * kDeskSecond; now += kDeskSecond) {
      turn(now);
      CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
    }
    turn(back + 3 * kDeskSecond);
    desk.reconciler->Tick(back + 4 * kDeskSecond);
    CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
  }
  SECTION("it had ended with time left, and so it has while the other cannot say that it has") {
    for (int64_t now = back; now < back + 60 * kDeskSecond; now += kDeskSecond) {
      desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 1), now);
      desk.Report("n2", Desk::Word(1, 1, v1::ATTEMPT_PHASE_UNSPECIFIED), now);
      desk.reconciler->Tick(now);
      CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
    }
    CHECK(desk.DesiredOn("n2") == v1::ATTEMPT_KILL);
    desk.Report("n2", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 137), back + 60 * kDeskSecond);
    CHECK(desk.StateOf(1) == v1::JOB_RECOVERING);
    CHECK(desk.table.Get(1)->status().used_ns() == kLimit - 10 * kDeskSecond);
  }
}

TEST_CASE("time limit: a restart of the daemon does not begin anew") {
  LimitedDesk desk;
  Desk again({}, desk.store);
  again.Dial("n1", kDeskBegin + kLimit - 2000000);
  Lives(again, kDeskBegin + kLimit - 2000000);
  again.reconciler->Tick(kDeskBegin + kLimit - 1000000);
  CHECK(again.StateOf(1) == v1::JOB_RUNNING);
  again.reconciler->Tick(kDeskBegin + kLimit);
  CHECK(again.StateOf(1) == v1::JOB_PAUSING);
}

TEST_CASE("time limit: a daemon that was just started hears first how the attempt fares") {
  LimitedDesk desk;
  Lives(desk, kDeskBegin + kDeskHour);
  v1::NodeReport word = Desk::Word(1, 1, v1::ATTEMPT_RUNNING);
  word.mutable_attempts(0)->set_saved_step(7);  // so long it has lived, in the store too
  desk.Report("n1", word, kDeskBegin + kDeskHour);
  Desk again({}, desk.store);
  const int64_t back = kDeskBegin + kLimit + 60 * kDeskSecond;
  again.reconciler->Listens(back);
  again.Dial("n1", back);
  again.reconciler->Tick(back);
  CHECK(again.StateOf(1) == v1::JOB_RUNNING);
  again.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 1), back);
  CHECK(again.StateOf(1) == v1::JOB_RECOVERING);
  CHECK(again.table.Get(1)->status().used_ns() == kDeskHour);
}

// The turn after the hello comes before the first report. What it says then, of the time before.
TEST_CASE("time limit: a node that comes back says first how the attempt fares") {
  LimitedDesk first;
  const int64_t last = kDeskBegin + kDeskHour / 2;
  Lives(first, last);
  v1::NodeReport word = Desk::Word(1, 1, v1::ATTEMPT_RUNNING);
  word.mutable_attempts(0)->set_saved_step(7);
  first.Report("n1", word, last);
  const int64_t back = kDeskBegin + kLimit + 60 * kDeskSecond;
  first.stood_still_ns = 0;
  Desk again({}, first.store);
  const bool restarted = GENERATE(true, false);
  CAPTURE(restarted);
  Desk& desk = restarted ? again : first;
  // The daemon's turns come in time.
  if (restarted) desk.reconciler->Listens(back - 30 * kDeskSecond);
  TurnEachSecond(*desk.reconciler, restarted ? back - 30 * kDeskSecond : last, back);
  REQUIRE(desk.stood_still_ns == (restarted ? back - 30 * kDeskSecond - kDeskBegin : 0));
  v1::NodeReport says = Desk::Word(1, 1, v1::ATTEMPT_PHASE_UNSPECIFIED);  // it has not looked yet
  if (restarted || GENERATE(true, false)) {
    desk.Dial("n1", back);
  } else {
    desk.Report("n1", says, back);  // over the line of before
  }
  desk.reconciler->Tick(back);
  CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
  SECTION("it has ended with time left") {
    desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 137), back);
    CHECK(desk.StateOf(1) == v1::JOB_RECOVERING);
    CHECK(desk.table.Get(1)->status().used_ns() == kDeskHour / 2);
  }
  SECTION("it has run on") {
    desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_RUNNING), back);
    desk.reconciler->Tick(back);
    CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
  }
  SECTION("it cannot say, and is waited for as long as one that is silent") {
    const int64_t until = back + std::chrono::nanoseconds(ReconcilerOptions{}.lease).count();
    for (int64_t now = back; now < until; now += kDeskSecond) {
      desk.Report("n1", says, now);
      desk.reconciler->Tick(now);
      CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
    }
    desk.reconciler->Tick(until);
    CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
  }
}

TEST_CASE("time limit: a node that comes back holds up the jobs with ranks there alone") {
  LimitedDesk desk;
  TurnEachSecond(*desk.reconciler, kDeskBegin, kDeskBegin + kLimit - kDeskSecond);
  desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_RUNNING), kDeskBegin + kLimit - kDeskSecond);
  desk.Dial("n2", kDeskBegin + kLimit);
  desk.reconciler->Tick(kDeskBegin + kLimit);
  CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
}

TEST_CASE("time limit: a clock that is set takes nothing of it and gives nothing") {
  LimitedDesk desk;
  const int64_t step = 50 * kDeskHour;
  desk.store->full = true;
  desk.reconciler->ClockWasSet(step, kDeskBegin + step);
  desk.reconciler->Tick(kDeskBegin + step + kLimit - 1000000);
  CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
  // Also for a daemon that comes after this one, once the disk has room.
  desk.store->full = false;
  desk.reconciler->Tick(kDeskBegin + step + kLimit - 900000);
  Desk again({}, desk.store);
  again.Dial("n1", kDeskBegin + step + kLimit - 850000);
  Lives(again, kDeskBegin + step + kLimit - 850000);
  again.reconciler->Tick(kDeskBegin + step + kLimit - 800000);
  CHECK(again.StateOf(1) == v1::JOB_RUNNING);
  again.reconciler->Tick(kDeskBegin + step + kLimit);
  CHECK(again.StateOf(1) == v1::JOB_PAUSING);
}

TEST_CASE("time limit: a full disk puts the stop off until it can be stored") {
  LimitedDesk desk;
  Lives(desk, kDeskBegin + kLimit - 1000000);
  desk.store->full = true;
  desk.reconciler->Tick(kDeskBegin + kLimit);
  CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
  desk.store->full = false;
  desk.reconciler->Tick(kDeskBegin + kLimit + 1000000);
  CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
}

TEST_CASE("time limit: an attempt that another queue holds does not use it up") {
  Desk desk;
  desk.Dial("n1");
  desk.Submit(2, kDeskBegin, Limited());
  desk.Launch(1, kDeskBegin);
  v1::NodeReport queued = Desk::Word(1, 1, v1::ATTEMPT_STARTING);
  queued.mutable_attempts(0)->set_waits_for("waits in Slurm's queue as job 7: Resources");
  desk.Report("n1", queued, kDeskBegin + kDeskSecond);
  desk.reconciler->Tick(kDeskBegin + 9 * kDeskHour);
  CHECK(desk.StateOf(1) == v1::JOB_LAUNCHING);
  Lives(desk, kDeskBegin + 9 * kDeskHour);
  Lives(desk, kDeskBegin + 11 * kDeskHour - 2000000);
  desk.reconciler->Tick(kDeskBegin + 11 * kDeskHour - 1000000);
  CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
  desk.reconciler->Tick(kDeskBegin + 11 * kDeskHour);
  CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
}

TEST_CASE("time limit: an attempt is told what is left of it, the same as long as it lasts") {
  LimitedDesk desk;
  const auto left = [&] {
    const v1::DesiredAttempts desired = desk.reconciler->DesiredOf("n1");
    REQUIRE(desired.attempts_size() == 1);
    return desired.attempts(0).launch().time_left_seconds();
  };
  CHECK(left() == 7200);
  int64_t now = kDeskBegin + kDeskHour / 2;
  Lives(desk, now);
  CHECK(left() == 7200);
  desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 1), now);
  REQUIRE(desk.StateOf(1) == v1::JOB_RECOVERING);
  now = desk.table.Get(1)->status().retry_at_unix_ns();
  desk.Report("n1", {}, now);
  desk.reconciler->Tick(now);
  REQUIRE(desk.reconciler->PlanReady(1, 2, absl::OkStatus(), now).ok());
  CHECK(left() == 5400);
}

TEST_CASE("time limit: hours in which nobody says that it lives are not its own") {
  LimitedDesk desk;
  const int64_t last = kDeskBegin + kDeskHour / 2;
  Lives(desk, last);
  // The power is off for a weekend.
  const int64_t back = last + 60 * kDeskHour;
  SECTION("its node's alone") {
    TurnEachSecond(*desk.reconciler, last, last + 30 * kDeskSecond);
    desk.reconciler->Tick(back - kDeskSecond);
    CHECK(desk.StateOf(1) == v1::JOB_RUNNING);
    desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 137), back);
    CHECK(desk.StateOf(1) == v1::JOB_RECOVERING);
    CHECK(desk.table.Get(1)->status().used_ns() == kDeskHour / 2);
  }
  SECTION("the daemon's, too: so long as its newest checkpoint says") {
    v1::NodeReport saved = Desk::Word(1, 1, v1::ATTEMPT_RUNNING);
    saved.mutable_attempts(0)->set_saved_step(7);
    TurnUpTo(desk, last + kDeskHour / 4);
    desk.Report("n1", saved, last + kDeskHour / 4);
    Desk again({}, desk.store);
    again.reconciler->Tick(back);
    CHECK(again.StateOf(1) == v1::JOB_RUNNING);
    again.Dial("n1", back);
    again.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 137), back);
    CHECK(again.StateOf(1) == v1::JOB_RECOVERING);
    CHECK(again.table.Get(1)->status().used_ns() == kDeskHour * 3 / 4);
  }
}

TEST_CASE("time limit: who resumes a job without time left is refused") {
  LimitedDesk desk;
  REQUIRE(desk.reconciler->Ask(1, PauseAsked{"ann"}, 0, kDeskBegin + kLimit - 1).ok());
  Lives(desk, kDeskBegin + kLimit);
  desk.reconciler->Tick(kDeskBegin + kLimit);
  desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 75), kDeskBegin + kLimit + kDeskSecond);
  CHECK(desk.StateOf(1) == v1::JOB_PAUSED);
  const auto resumed =
      desk.reconciler->Ask(1, ResumeAsked{"ann"}, 0, kDeskBegin + kLimit + kDeskSecond);
  CHECK(resumed.status().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace trireme::coordinator
