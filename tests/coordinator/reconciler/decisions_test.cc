// One decision of the reconciler after another, each where another one would show.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "tests/coordinator/reconciler/desk.h"
#include "tests/coordinator/reconciler/turn_each_second.h"

namespace trireme::coordinator {
namespace {

using Catch::Contains;

// Job 1 over n1 and n2, launched.
struct OnTwoNodes : Desk {
  OnTwoNodes() {
    Dial("n1");
    Dial("n2");
    Launch(Submit(8, kDeskBegin), kDeskBegin);
    first = table.Get(1)->allocation(0).node();
    second = table.Get(1)->allocation(1).node();
  }
  v1::JobStatus Status() const { return table.Get(1)->status(); }
  void Lose(const std::string& node, int64_t at) {
    TurnEachSecond(*reconciler, kDeskBegin, at);
    REQUIRE(reconciler->SetUse({node, true, "burnt", true}, at).ok());
  }
  std::string first;
  std::string second;
};

constexpr int64_t kSilent = kDeskBegin + 30 * kDeskSecond;

}  // namespace

TEST_CASE("a job is told, timed and placed as it was submitted") {
  ReconcilerOptions options;
  options.jobs_folder = "/jobs";
  options.version = "1.2.3";
  Desk desk(options);
  desk.Dial("n1");
  desk.Dial("n2");
  desk.reconciler->Tick(kDeskBegin);
  const int64_t now = kDeskBegin + 5;
  const uint64_t job = desk.Submit(1, now);
  const v1::Job stored = *desk.table.Get(job);
  CHECK(stored.run_folder() == "/jobs/1");
  CHECK(stored.submitted_unix_ns() == now);
  CHECK(stored.status().changed_unix_ns() == now);
  CHECK(desk.Events().back().time_unix_ns() == now);
  desk.told.clear();
  desk.reconciler->Tick(now + 1);
  REQUIRE(desk.StateOf(job) == v1::JOB_PLANNING);
  const v1::Event placed = desk.Events().back();
  CHECK(placed.attempt() == 1);
  CHECK(placed.time_unix_ns() == now + 1);
  // While it is planned no node is to have anything, and nobody is told again and again.
  CHECK(desk.reconciler->DesiredOf("n1").attempts().empty());
  desk.told.clear();
  desk.reconciler->Tick(now + 2);
  CHECK(desk.told.empty());
  CHECK(desk.plans == 1);
  REQUIRE(desk.reconciler->PlanReady(job, 1, absl::OkStatus(), now + 3).ok());
  REQUIRE(desk.reconciler->DesiredOf("n1").attempts_size() == 1);
  const v1::LaunchSpec launch = desk.reconciler->DesiredOf("n1").attempts(0).launch();
  REQUIRE(launch.allocation_size() == 1);
  CHECK(launch.allocation(0).node() == "n1");
  CHECK(desk.reconciler->DesiredOf("n2").attempts().empty());
  CHECK(desk.table.cluster().version() == "1.2.3");
  CHECK(desk.table.cluster().started_unix_ns() == kDeskBegin);
}

TEST_CASE("whoever may be placed is placed by the next tick") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  const auto ask = [&](const JobEvent& event) {
    REQUIRE(desk.reconciler->Ask(job, event, 0, kDeskBegin).ok());
    desk.reconciler->Tick(kDeskBegin);
  };
  ask(PauseAsked{"ann"});
  CHECK(desk.StateOf(job) == v1::JOB_PAUSED);
  ask(ResumeAsked{"ann"});
  CHECK(desk.StateOf(job) == v1::JOB_PLANNING);
  ask(CancelAsked{"ann"});
  REQUIRE(desk.reconciler->SetUse({"n1", true, ""}, kDeskBegin).ok());
  const uint64_t other = desk.Submit(1, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin);
  CHECK(desk.StateOf(other) == v1::JOB_PENDING);
  CHECK_THAT(desk.table.Get(other)->waits_for(), !Contains("drained:"));
  CHECK_THAT(desk.table.Get(other)->waits_for(), Contains("drained"));
  REQUIRE(desk.reconciler->SetUse({"n1", false, ""}, kDeskBegin).ok());
  desk.reconciler->Tick(kDeskBegin);
  CHECK(desk.StateOf(other) == v1::JOB_PLANNING);
}

TEST_CASE("a plan is asked for each attempt and heard of that one") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin);
  REQUIRE(desk.reconciler->Ask(job, PauseAsked{"ann"}, 0, kDeskBegin).ok());
  REQUIRE(desk.reconciler->Ask(job, ResumeAsked{"ann"}, 0, kDeskBegin).ok());
  desk.reconciler->Tick(kDeskBegin);
  REQUIRE(desk.table.Get(job)->status().attempt() == 2);
  CHECK(desk.plans == 2);
  // That of the attempt before comes late, whatever it is.
  const absl::Status refused = absl::InvalidArgumentError("no such shape");
  for (const absl::Status& late : {absl::OkStatus(), refused}) {
    REQUIRE(desk.reconciler->PlanReady(job, 1, late, kDeskBegin).ok());
    CHECK(desk.StateOf(job) == v1::JOB_PLANNING);
  }
  desk.reconciler->Tick(kDeskBegin + 1);
  CHECK(desk.plans == 2);
  REQUIRE(desk.reconciler->PlanReady(job, 2, refused, kDeskBegin + 1).ok());
  const v1::JobStatus failed = desk.table.Get(job)->status();
  CHECK(failed.state() == v1::JOB_FAILED);
  CHECK(failed.exit_code() == 2);
  CHECK_THAT(failed.reason(), Contains("no such shape"));
  // Where it is no fault of the job there is another attempt.
  const uint64_t other = desk.Submit(1, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin + 1);
  const absl::Status passing = absl::InternalError("the planner was killed");
  REQUIRE(desk.reconciler->PlanReady(other, 1, passing, kDeskBegin + 1).ok());
  CHECK(desk.StateOf(other) == v1::JOB_RECOVERING);
}

TEST_CASE(
    "only a cancel that comes again makes a grace shorter, and only of an attempt that lives") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  const uint64_t waits = desk.Submit(100, kDeskBegin);
  desk.Launch(job, kDeskBegin);
  const auto grace = [&](uint64_t id, const JobEvent& event, double seconds) {
    const auto asked = desk.reconciler->Ask(id, event, seconds, kDeskBegin);
    REQUIRE(asked.ok());
    return asked->status().stop_grace_seconds();
  };
  CHECK(grace(job, PauseAsked{"ann"}, 50) == 50);
  CHECK(grace(job, PauseAsked{"ann"}, 1) == 50);
  CHECK(grace(job, CancelAsked{"ann"}, 40) == 40);
  CHECK(grace(job, CancelAsked{"ann"}, 2) == 2);
  desk.told.clear();
  CHECK(grace(job, CancelAsked{"ann"}, 2) == 2);
  CHECK(desk.told.empty());  // nothing new
  CHECK(grace(waits, CancelAsked{"ann"}, 40) == 40);
  CHECK(grace(waits, CancelAsked{"ann"}, 2) == 40);
}

TEST_CASE("a pause leaves three steps of the slowest rank, the deadline and a minute") {
  Desk desk;
  for (const char* node : {"n1", "n2"}) desk.Dial(node);
  Submission submission;
  submission.job.mutable_runtime()->set_deadline_seconds(120);
  const auto pause_after = [&](double seconds) {
    const int64_t now = kDeskBegin + static_cast<int64_t>(seconds * kDeskSecond);
    return [&desk, now](uint64_t job, double grace) {
      REQUIRE(desk.reconciler->Ask(job, PauseAsked{"ann"}, grace, now).ok());
      const v1::DesiredAttempts desired = desk.reconciler->DesiredOf("n1");
      REQUIRE(desired.attempts_size() == 1);
      CHECK(desired.attempts(0).desired_state() == v1::ATTEMPT_STOP);
      return desired.attempts(0).grace_seconds();
    };
  };
  const auto run = [&](std::initializer_list<double> step_seconds) {
    const uint64_t job = desk.Submit(8, kDeskBegin, submission);
    desk.Launch(job, kDeskBegin);
    uint32_t node = 0;
    for (const double seconds : step_seconds) {
      v1::NodeReport report = Desk::RankWord(job, 1, 4 * node, v1::RANK_ALIVE);
      report.mutable_attempts(0)->mutable_ranks(0)->mutable_timing()->set_step_ms(1000 * seconds);
      desk.Report(++node == 1 ? "n1" : "n2", report, kDeskBegin);
    }
    return job;
  };
  const auto end = [&](uint64_t job) {
    for (const char* node : {"n1", "n2"}) {
      desk.Report(node, Desk::Word(job, 1, v1::ATTEMPT_ENDED, 75), kDeskBegin);
    }
    REQUIRE(desk.StateOf(job) == v1::JOB_PAUSED);
  };
  // A rank of the first stage has ended its step before those behind it.
  const uint64_t slow = run({280, 300});
  CHECK(pause_after(5000)(slow, 0) == 3 * 300 + 120 + 60);
  end(slow);
  const uint64_t named = run({300, 300});
  CHECK(pause_after(5000)(named, 20) == 20);
  end(named);
  // Nobody has told of a step yet, as after a start of the daemon: it may be as long as all.
  const uint64_t untold = run({0, 0});
  CHECK(pause_after(400)(untold, 0) == 3 * 400 + 120 + 60);
}

TEST_CASE("progress of an attempt that does not live is nobody's") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin);
  REQUIRE(desk.StateOf(job) == v1::JOB_PLANNING);
  v1::NodeReport word = Desk::Word(job, 1, v1::ATTEMPT_RUNNING);
  word.mutable_attempts(0)->mutable_progress()->set_steps_done(7);
  desk.Report("n1", word, kDeskBegin);
  CHECK_FALSE(desk.table.ProgressOf(job).has_value());
}

TEST_CASE("deaths are told of an attempt that is to run and of no other") {
  for (const bool paused : {false, true}) {
    CAPTURE(paused);
    Desk desk;
    desk.Dial("n1");
    const uint64_t job = desk.Submit(2, kDeskBegin);
    desk.Launch(job, kDeskBegin);
    desk.Report("n1", Desk::RankWord(job, 1, 1, v1::RANK_ALIVE), kDeskBegin);
    if (paused) REQUIRE(desk.reconciler->Ask(job, PauseAsked{"ann"}, 0, kDeskBegin).ok());
    desk.Report("n1", Desk::RankWord(job, 1, 1, v1::RANK_DEAD), kDeskBegin);
    CHECK(desk.Stalls().size() == (paused ? 0 : 1));
  }
  // What is left of an attempt that has lost a node is killed.
  OnTwoNodes desk;
  desk.Report(desk.second, Desk::RankWord(1, 1, 4, v1::RANK_ALIVE), kSilent);
  desk.Lose(desk.first, kSilent);
  desk.reconciler->Tick(kSilent);
  REQUIRE(desk.DesiredOn(desk.second) == v1::ATTEMPT_KILL);
  desk.Report(desk.second, Desk::RankWord(1, 1, 4, v1::RANK_DEAD), kSilent);
  CHECK(desk.Stalls().empty());
}

TEST_CASE("an attempt runs when all its nodes say so") {
  for (const bool ended : {false, true}) {
    CAPTURE(ended);
    OnTwoNodes desk;
    if (ended) desk.Report(desk.first, Desk::Word(1, 1, v1::ATTEMPT_ENDED, 4), kDeskBegin);
    desk.Report(desk.second, Desk::Word(1, 1, v1::ATTEMPT_RUNNING), kDeskBegin);
    CHECK(desk.StateOf(1) == v1::JOB_LAUNCHING);
  }
}

TEST_CASE("that saves fail is the launcher's node's to say") {
  OnTwoNodes desk;
  v1::NodeReport word = Desk::Word(1, 1, v1::ATTEMPT_RUNNING);
  desk.Report(desk.second, word, kDeskBegin);
  word.mutable_attempts(0)->mutable_failure()->set_headline("step 5 was not written: full");
  desk.Report(desk.first, word, kDeskBegin);
  const std::string told = "attempt 1 is at work; step 5 was not written: full";
  desk.Report(desk.first, word, kDeskBegin);
  CHECK(desk.Status().reason() == told);
  word.mutable_attempts(0)->clear_failure();
  desk.Report(desk.second, word, kDeskBegin);
  CHECK(desk.Status().reason() == told);
  word.mutable_attempts(0)->set_saved_step(7);
  desk.Report(desk.first, word, kDeskBegin);
  CHECK(desk.Status().reason() == "attempt 1 is at work and saves again");
}

TEST_CASE("what the launcher's node says of an end is told, and the newest checkpoint of any") {
  OnTwoNodes desk;
  v1::NodeReport word = Desk::Word(1, 1, v1::ATTEMPT_RUNNING);
  word.mutable_attempts(0)->set_saved_step(5);
  desk.Report(desk.first, word, kDeskBegin);
  word.mutable_attempts(0)->set_saved_step(3);
  desk.Report(desk.second, word, kDeskBegin);
  CHECK(desk.Status().checkpoint_step() == 5);
  word = Desk::Word(1, 1, v1::ATTEMPT_ENDED, 4);
  word.mutable_attempts(0)->mutable_failure()->set_headline("rank 6 died");
  desk.Report(desk.first, word, kDeskBegin);
  // Heard of with the end alone.
  word = Desk::Word(1, 1, v1::ATTEMPT_ENDED, 137);
  word.mutable_attempts(0)->set_saved_step(9);
  desk.Report(desk.second, word, kDeskBegin);
  CHECK(desk.StateOf(1) == v1::JOB_RECOVERING);
  CHECK(desk.Status().failure().headline() == "rank 6 died");
  CHECK(desk.Status().checkpoint_step() == 9);
}

TEST_CASE("where an attempt went on in memory is rank 0's node's to say, whichever launched it") {
  OnTwoNodes desk;
  v1::NodeReport word = Desk::Word(1, 1, v1::ATTEMPT_RUNNING);
  desk.Report(desk.first, word, kDeskBegin);
  word.mutable_attempts(0)->mutable_progress()->set_memory_step(12);
  desk.Report(desk.second, word, kDeskBegin);
  CHECK(desk.Status().memory_step() == 12);
  CHECK(desk.Status().furthest_memory_step() == 12);
  const std::vector<v1::Event> events = desk.Events();
  CHECK(events.back().went_on_in_memory().step() == 12);
  desk.Report(desk.first, Desk::Word(1, 1, v1::ATTEMPT_RUNNING), kDeskBegin);
  CHECK(desk.Status().memory_step() == 12);
}

TEST_CASE("a step in memory that failed twice is used by no launch until the job is beyond it") {
  auto desk = std::make_unique<Desk>();
  desk->Dial("n1");
  int64_t now = kDeskBegin;
  const uint64_t job = desk->Submit(1, now);
  uint32_t attempt = 0;
  const auto bound = [&] {
    const v1::DesiredAttempts desired = desk->reconciler->DesiredOf("n1");
    REQUIRE(desired.attempts_size() == 1);
    return desired.attempts(0).launch().snapshots_before();
  };
  const auto launch = [&] {
    now += kDeskHour;
    desk->Report("n1", v1::NodeReport(), now);
    desk->reconciler->Tick(now);
    REQUIRE(desk->reconciler->PlanReady(job, ++attempt, absl::OkStatus(), now).ok());
    REQUIRE(desk->StateOf(job) == v1::JOB_LAUNCHING);
  };
  const auto word = [&](v1::AttemptPhase phase, uint64_t memory_step, uint64_t steps_done) {
    v1::NodeReport report = Desk::Word(job, attempt, phase, phase == v1::ATTEMPT_ENDED ? 4 : 0);
    v1::AttemptReport& one = *report.mutable_attempts(0);
    one.set_launcher(true);
    one.mutable_progress()->set_memory_step(memory_step);
    one.mutable_progress()->set_steps_done(steps_done);
    if (phase == v1::ATTEMPT_ENDED) one.mutable_failure()->set_own(true);
    desk->Report("n1", report, now);
  };
  for (int failure = 0; failure < 2; ++failure) {
    launch();
    CHECK(bound() == 0);
    word(v1::ATTEMPT_RUNNING, 12, 12);
    if (failure == 0) {  // what is known of the step outlives the daemon
      desk = std::make_unique<Desk>(ReconcilerOptions(), desk->store);
      desk->Dial("n1", now);
    }
    word(v1::ATTEMPT_ENDED, 12, 12);
    REQUIRE(desk->StateOf(job) == v1::JOB_RECOVERING);
  }
  desk = std::make_unique<Desk>(ReconcilerOptions(), desk->store);
  desk->Dial("n1", now);
  launch();
  CHECK(bound() == 12);
  word(v1::ATTEMPT_RUNNING, 0, 12);
  CHECK(bound() == 12);
  word(v1::ATTEMPT_RUNNING, 0, 13);
  CHECK(bound() == 0);
  CHECK(desk->Events().back().memory_step_left().over());
}

TEST_CASE("of a node that is gone the end is taken as it was or as a kill") {
  for (const bool had_ended : {false, true}) {
    CAPTURE(had_ended);
    OnTwoNodes desk;
    if (had_ended) desk.Report(desk.first, Desk::Word(1, 1, v1::ATTEMPT_ENDED), kDeskBegin);
    desk.Report(desk.second, Desk::Word(1, 1, v1::ATTEMPT_RUNNING), kSilent);
    // Silent is not gone.
    TurnEachSecond(*desk.reconciler, kDeskBegin, kSilent);
    REQUIRE(desk.table.cluster().nodes(0).state() == v1::NODE_LOST);
    if (!had_ended) {
      desk.Report(desk.second, Desk::Word(1, 1, v1::ATTEMPT_ENDED, 137), kSilent);
      CHECK(desk.Status().attempt_live());
    }
    desk.Lose(desk.first, kSilent);
    // Before any tick.
    desk.Report(desk.second, Desk::Word(1, 1, v1::ATTEMPT_ENDED, 137), kSilent);
    CHECK_FALSE(desk.Status().attempt_live());
    CHECK(desk.StateOf(1) == (had_ended ? v1::JOB_COMPLETED : v1::JOB_RECOVERING));
    if (had_ended) continue;
    CHECK(desk.Status().exit_code() == 137);
    CHECK(desk.Status().failure().rank() == -1);
    CHECK(desk.Status().failure().exit_code() == 137);
    CHECK(desk.Status().failure().headline() == "node " + desk.first + " is gone: burnt");
  }
}

TEST_CASE("a job that runs says what any of its nodes waits for") {
  OnTwoNodes desk;
  const std::string late = desk.second;
  v1::NodeReport word = Desk::Word(1, 1, v1::ATTEMPT_STARTING);
  desk.Report(desk.first, word, kDeskBegin);
  word.mutable_attempts(0)->set_waits_for("Resources");
  desk.Report(late, word, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin + 1);
  CHECK(desk.table.Get(1)->waits_for() == "Resources");
  CHECK(desk.table.Get(1)->queue_position() == 0);
  desk.Report(desk.first, {}, kSilent);
  TurnEachSecond(*desk.reconciler, kDeskBegin, kSilent);
  CHECK_THAT(desk.table.Get(1)->waits_for(), Contains("agent of node " + late));
  // One that is gone is no one to wait for, and is named so in the queue.
  const uint64_t other = desk.Submit(8, kSilent);
  desk.reconciler->Tick(kSilent);
  CHECK_THAT(desk.table.Get(other)->waits_for(), Contains(late) && Contains("lost"));
  REQUIRE(desk.reconciler->SetUse({late, true, "burnt", true}, kSilent).ok());
  desk.reconciler->Tick(kSilent);
  CHECK_THAT(desk.table.Get(other)->waits_for(), !Contains("lost"));
}

TEST_CASE("the queue goes by priority and then by submission") {
  Desk desk;
  desk.Dial("n1");
  const auto submit = [&](int64_t priority) {
    Submission submission;
    submission.job.mutable_resources()->set_priority(priority);
    return desk.Submit(100, kDeskBegin + desk.requests, submission);
  };
  const uint64_t first = submit(0), second = submit(0), urgent = submit(1);
  // Whoever was paused meanwhile is no later for it.
  REQUIRE(desk.reconciler->Ask(first, PauseAsked{"ann"}, 0, kDeskBegin + 10).ok());
  REQUIRE(desk.reconciler->Ask(first, ResumeAsked{"ann"}, 0, kDeskBegin + 11).ok());
  desk.reconciler->Tick(kDeskBegin + 12);
  CHECK(desk.table.Get(urgent)->queue_position() == 1);
  CHECK(desk.table.Get(first)->queue_position() == 2);
  CHECK(desk.table.Get(second)->queue_position() == 3);
}

TEST_CASE("the cluster counts those that run and not those that wait to") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.Launch(job, kDeskBegin);
  desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_RUNNING), kDeskBegin);
  desk.reconciler->Tick(kDeskBegin + kDeskSecond);
  CHECK(desk.table.cluster().jobs_running() == 1);
  // Neither what it says again nor a tick is anything that nodes need to hear of.
  desk.told.clear();
  desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_RUNNING), kDeskBegin + kDeskSecond);
  desk.reconciler->Tick(kDeskBegin + kDeskSecond + 1);
  CHECK(desk.told.empty());
  // What changes all the time is shown once a second, and a checkpoint changes no allocation.
  v1::NodeReport saved = Desk::Word(job, 1, v1::ATTEMPT_RUNNING);
  saved.mutable_attempts(0)->set_saved_step(1);
  desk.Report("n1", saved, kDeskBegin + kDeskSecond + 2);
  desk.reconciler->Tick(kDeskBegin + kDeskSecond + 3);
  CHECK(desk.table.cluster().nodes(0).last_report_unix_ns() == kDeskBegin);
  const int64_t end = kDeskBegin + kDeskSecond * 3 / 2;
  desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_ENDED, 4), end);
  desk.reconciler->Tick(
      end);  // its allocation may be others' now: shown at once or within a second
  desk.Report("n1", {}, end + kDeskSecond / 2);
  desk.reconciler->Tick(end + kDeskSecond / 2);
  REQUIRE(desk.StateOf(job) == v1::JOB_RECOVERING);
  CHECK(desk.table.cluster().jobs_running() == 0);
  CHECK(desk.table.cluster().nodes(0).last_report_unix_ns() == end + kDeskSecond / 2);
}

}  // namespace trireme::coordinator
