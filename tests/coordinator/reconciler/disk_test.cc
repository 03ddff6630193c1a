// What a reconciler does while its disk takes nothing, and what the next one finds there.
#include <catch2/catch.hpp>

#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {
namespace {

// Job 1 runs on n1.
struct AtWork : Desk {
  AtWork() {
    Dial("n1");
    Launch(Submit(2, kDeskBegin), kDeskBegin);
    Report("n1", Word(1, 1, v1::ATTEMPT_RUNNING), kDeskBegin);
    REQUIRE(StateOf(1) == v1::JOB_RUNNING);
  }
};

}  // namespace

TEST_CASE("what a full disk refuses has not happened and can be asked again") {
  AtWork desk;
  const size_t events = desk.Events().size();
  const std::string job = desk.table.Get(1)->SerializeAsString();
  desk.store->full = true;
  CHECK_FALSE(desk.reconciler->Ask(1, PauseAsked{"ann"}, 0, kDeskBegin + 1).ok());
  CHECK(desk.table.Get(1)->SerializeAsString() == job);
  CHECK(desk.DesiredOn("n1") == v1::ATTEMPT_RUN);
  CHECK_FALSE(desk.reconciler->SetUse({"n1", true, "new disk"}, kDeskBegin + 1).ok());
  Submission submission;
  submission.owner = "ann";
  submission.request_id = "refused";
  CHECK_FALSE(desk.reconciler->Submit(submission, kDeskBegin + 1).ok());
  CHECK(absl::IsNotFound(desk.reconciler->Ask(2, PauseAsked{"ann"}, 0, kDeskBegin).status()));
  desk.store->full = false;
  CHECK(desk.Events().size() == events);
  // The node is not drained.
  const uint64_t other = desk.Submit(1, kDeskBegin + 2);
  desk.reconciler->Tick(kDeskBegin + 2);
  CHECK(desk.StateOf(other) == v1::JOB_PLANNING);
  CHECK(desk.reconciler->Ask(1, PauseAsked{"ann"}, 0, kDeskBegin + 3).ok());
  CHECK(desk.StateOf(1) == v1::JOB_PAUSING);
}

TEST_CASE("a tick on a full disk waits its time and the next one makes up for it") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.store->full = true;
  const int64_t next = desk.reconciler->Tick(kDeskBegin);
  CHECK(next == kDeskBegin + kDeskSecond);
  CHECK(desk.StateOf(job) == v1::JOB_PENDING);
  desk.store->full = false;
  desk.reconciler->Tick(next);
  CHECK(desk.StateOf(job) == v1::JOB_PLANNING);
  // Nor is a plan lost whose arrival could not be stored.
  desk.store->full = true;
  CHECK_FALSE(desk.reconciler->PlanReady(job, 1, absl::OkStatus(), next).ok());
  CHECK(desk.plans == 1);
  desk.store->full = false;
  // It is made again, and written, so not at once; also by a clock that was set back meanwhile.
  desk.reconciler->Tick(next + 4 * kDeskSecond);
  CHECK(desk.plans == 1);
  desk.reconciler->ClockWasSet(-kDeskHour, next + 4 * kDeskSecond - kDeskHour);
  const int64_t again = next + 5 * kDeskSecond - kDeskHour;
  desk.reconciler->Tick(again);
  CHECK(desk.plans == 2);
  REQUIRE(desk.reconciler->PlanReady(job, 1, absl::OkStatus(), again).ok());
  CHECK(desk.StateOf(job) == v1::JOB_LAUNCHING);
}

TEST_CASE(
    "a plan that is late is waited for, and one that is said to come no more is asked for again") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin);
  REQUIRE(desk.plans == 1);
  const auto hold_up = [&](const std::string& why, bool again, int64_t now) {
    REQUIRE(desk.reconciler->PlanHeldUp(job, 1, why, again, now).ok());
  };
  hold_up("has not answered", /*again=*/false, kDeskBegin);
  const int64_t later = kDeskBegin + kDeskSecond;
  desk.reconciler->Tick(later);
  CHECK(desk.plans == 1);
  CHECK(desk.table.Get(job)->status().reason() == "its plan waits: has not answered");
  hold_up("no memory", /*again=*/true, later);
  // The two may come in either order.
  hold_up("has not answered", /*again=*/false, later);
  desk.reconciler->Tick(later + kDeskSecond);
  CHECK(desk.plans == 1);
  desk.reconciler->Tick(later + 5 * kDeskSecond);
  CHECK(desk.plans == 2);
  REQUIRE(desk.reconciler->PlanReady(job, 1, absl::OkStatus(), later + 5 * kDeskSecond).ok());
  CHECK(desk.StateOf(job) == v1::JOB_LAUNCHING);
}

TEST_CASE("a job whose plan is held up leaves a node that is lost or drained meanwhile") {
  const bool drained = GENERATE(false, true);
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin);
  REQUIRE(desk.plans == 1);
  const absl::Status full = absl::UnavailableError("cannot write plan.pb: the disk is full");
  REQUIRE(desk.reconciler->PlanReady(job, 1, full, kDeskBegin).ok());
  int64_t now = kDeskBegin;
  if (drained) {
    NodeUse use;
    use.node = "n1";
    use.drained = true;
    REQUIRE(desk.reconciler->SetUse(use, now).ok());
  } else {
    for (; now < kDeskBegin + 60 * kDeskSecond; now += kDeskSecond) desk.reconciler->Tick(now);
  }
  desk.reconciler->Tick(now);
  CHECK(desk.StateOf(job) == v1::JOB_PENDING);
  // What comes late is nobody's.
  REQUIRE(desk.reconciler->PlanReady(job, 1, absl::OkStatus(), now).ok());
  CHECK(desk.StateOf(job) == v1::JOB_PENDING);
  desk.Dial("n2", now);
  desk.reconciler->Tick(now);
  CHECK(desk.StateOf(job) == v1::JOB_PLANNING);
  REQUIRE(desk.reconciler->PlanReady(job, 2, absl::OkStatus(), now).ok());
  CHECK(desk.StateOf(job) == v1::JOB_LAUNCHING);
  CHECK(desk.table.Get(job)->allocation(0).node() == "n2");
  CHECK(desk.table.Get(job)->status().failures() == 0);
}

TEST_CASE("a run folder's disk that refuses fails no job, however long, and is asked again") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  int64_t now = kDeskBegin;
  for (int minute = 0; minute < 10; ++minute) {
    desk.reconciler->Tick(now);
    REQUIRE(desk.plans == minute + 1);
    const absl::Status full = absl::UnavailableError("cannot write plan.pb: the disk is full");
    REQUIRE(desk.reconciler->PlanReady(job, 1, full, now).ok());
    const v1::JobStatus status = desk.table.Get(job)->status();
    CHECK(status.state() == v1::JOB_PLANNING);
    CHECK(status.reason() == "its plan waits: cannot write plan.pb: the disk is full");
    CHECK(status.failures() == 0);
    CHECK(status.attempt() == 1);
    // Not in each turn.
    desk.reconciler->Tick(now + kDeskSecond);
    CHECK(desk.plans == minute + 1);
    now += 60 * kDeskSecond;
    desk.Report("n1", {}, now);
  }
  desk.reconciler->Tick(now);
  REQUIRE(desk.reconciler->PlanReady(job, 1, absl::OkStatus(), now).ok());
  CHECK(desk.StateOf(job) == v1::JOB_LAUNCHING);
}

TEST_CASE("a stop that could not be stored is told when there is room") {
  AtWork desk;
  desk.store->full = true;
  const v1::NodeReport stopped = Desk::RankWord(1, 1, 1, v1::RANK_STOPPED);
  CHECK_FALSE(desk.reconciler->Report("n1", stopped, kDeskBegin + 1).ok());
  desk.store->full = false;
  CHECK(desk.Stalls().empty());
  desk.Report("n1", stopped, kDeskBegin + 2);
  desk.Report("n1", stopped, kDeskBegin + 3);
  const auto told = desk.Stalls();
  REQUIRE(told.size() == 1);
  CHECK(told[0].job_id() == 1);
  CHECK(told[0].attempt() == 1);
  CHECK(told[0].time_unix_ns() == kDeskBegin + 2);
  // It lives, but has not moved since that was told.
  v1::NodeReport lives = Desk::RankWord(1, 1, 1, v1::RANK_ALIVE);
  lives.mutable_attempts(0)->mutable_ranks(0)->set_still_ms(10'000);
  desk.Report("n1", lives, kDeskBegin + 9 * kDeskSecond);
  CHECK(desk.Stalls().size() == 1);
  lives.mutable_attempts(0)->mutable_ranks(0)->set_still_ms(1000);
  desk.Report("n1", lives, kDeskBegin + 9 * kDeskSecond);
  CHECK(desk.Stalls().size() == 2);
}

TEST_CASE("nodes that do not come back are told of when there is room for it") {
  Desk desk;
  desk.Dial("n1");
  desk.Launch(desk.Submit(1, kDeskBegin), kDeskBegin);
  Desk again({}, desk.store);
  const int64_t due = kDeskBegin + 10 * kDeskSecond;
  const size_t before = again.Events().size();
  again.reconciler->Tick(due - 1);
  CHECK(again.Events().size() == before);
  again.store->full = true;
  again.reconciler->Tick(due);
  again.store->full = false;
  CHECK(again.Events().size() == before);
  again.reconciler->Tick(due);
  const auto events = again.Events();
  REQUIRE(events.size() == before + 1);
  CHECK(events.back().time_unix_ns() == due);
  CHECK(events.back().node_changed().node() == "n1");
  CHECK(events.back().node_changed().reason() ==
        "its agent has been silent since this daemon was started");
  again.reconciler->Tick(due + 1);
  CHECK(again.Events().size() == before + 1);
}

TEST_CASE("a daemon that comes back knows the stops of its attempts and of no others") {
  Desk desk;
  desk.Dial("n1");
  for (const uint64_t job : {1, 2, 3}) {
    desk.Submit(1, kDeskBegin);
    desk.Launch(job, kDeskBegin);
  }
  // Of 1 its rank 1; of 2 the same of an attempt before; of 3 rank 1 as well, which never goes on.
  for (const uint64_t job : {1, 2, 3}) {
    desk.Report("n1", Desk::RankWord(job, 1, 1, v1::RANK_STOPPED), kDeskBegin);
  }
  desk.Report("n1", Desk::Word(2, 1, v1::ATTEMPT_ENDED, 4), kDeskBegin);
  const int64_t retry = desk.table.Get(2)->status().retry_at_unix_ns();
  desk.reconciler->Tick(retry);
  REQUIRE(desk.reconciler->PlanReady(2, 2, absl::OkStatus(), retry).ok());
  REQUIRE(desk.Stalls().size() == 3);
  Desk again({}, desk.store);
  CHECK(again.told.contains("n1"));
  again.Dial("n1", retry);
  again.Report("n1", Desk::RankWord(1, 1, 1, v1::RANK_STOPPED), retry);
  CHECK(again.Stalls().size() == 3);
  again.Report("n1", Desk::RankWord(2, 2, 1, v1::RANK_STOPPED), retry);
  CHECK(again.Stalls().size() == 4);
  // Rank 0 of none of them was told of, whatever else was.
  for (const uint64_t job : {1, 3}) {
    again.Report("n1", Desk::RankWord(job, 1, 0, v1::RANK_STOPPED), retry);
  }
  CHECK(again.Stalls().size() == 6);
  // When it was told is known as well: it lives, but has not moved since.
  v1::NodeReport lives = Desk::RankWord(3, 1, 1, v1::RANK_ALIVE);
  lives.mutable_attempts(0)->mutable_ranks(0)->set_still_ms(60'000);
  again.Report("n1", lives, retry);
  CHECK(again.Stalls().size() == 6);
}

TEST_CASE("stops are recalled of one job among others and from a long history") {
  Desk desk;
  desk.Dial("n1");
  for (const uint64_t job : {1, 2}) {
    desk.Submit(1, kDeskBegin);
    desk.Launch(job, kDeskBegin);
  }
  Change change;
  for (int i = 0; i < 1100; ++i) {
    v1::Event& event = change.events.emplace_back();
    event.set_job_id(1);
    event.set_attempt(1);
    event.mutable_checkpointed()->set_step(1);
  }
  change.events.back().mutable_stalled()->set_rank(1);
  change.events.back().set_time_unix_ns(kDeskBegin);
  REQUIRE(desk.store->Commit(change).ok());
  Desk again({}, desk.store);
  again.Dial("n1");
  for (const uint64_t job : {1, 2}) {
    again.Report("n1", Desk::RankWord(job, 1, 1, v1::RANK_STOPPED), kDeskBegin);
  }
  // Only that of the other job is news.
  const v1::Event last = again.Events().back();
  CHECK(again.Stalls().size() == 2);
  CHECK(last.job_id() == 2);
}

TEST_CASE("readers find the newest thousand events after a restart") {
  Desk desk;
  Change change;
  for (int i = 0; i < 1500; ++i) change.events.emplace_back().mutable_checkpointed()->set_step(1);
  REQUIRE(desk.store->Commit(change).ok());
  Desk again({}, desk.store);
  CHECK(again.table.last_sequence() == 1500);
  CHECK(again.table.EventsAfter(500, 2000)->size() == 1000);
  CHECK_FALSE(again.table.EventsAfter(499, 2000).has_value());
  // And what follows: one of the submission.
  again.Submit(1, kDeskBegin);
  const auto next = again.table.EventsAfter(1500, 10);
  REQUIRE(next->size() == 1);
  CHECK(next->front().submitted().owner() == "ann");
}

TEST_CASE("jobs that have ended take no room in the queue of the next daemon") {
  ReconcilerOptions options;
  options.most_waiting_jobs = 1;
  Desk desk(options);
  const uint64_t job = desk.Submit(1, kDeskBegin);
  REQUIRE(desk.reconciler->Ask(job, CancelAsked{"ann"}, 0, kDeskBegin).ok());
  Desk again(options, desk.store);
  again.requests = desk.requests;
  again.Submit(1, kDeskBegin);
}

TEST_CASE("progress is stored when nobody can tell it any more") {
  AtWork desk;
  v1::NodeReport word = Desk::Word(1, 1, v1::ATTEMPT_RUNNING);
  word.mutable_attempts(0)->mutable_progress()->set_steps_done(7);
  desk.Report("n1", word, kDeskBegin);
  REQUIRE(desk.reconciler->Ask(1, PauseAsked{"ann"}, 0, kDeskBegin).ok());
  CHECK_FALSE(desk.store->Jobs()->front().has_progress());
  desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 75), kDeskBegin);
  CHECK(desk.store->Jobs()->front().progress().steps_done() == 7);
}

TEST_CASE("of nodes only those are stored whose use somebody has set") {
  Desk desk;
  desk.Dial("n1");
  desk.Dial("n2");
  CHECK(desk.store->Nodes()->empty());
  REQUIRE(desk.reconciler->SetUse({"n2", true, "new disk"}, kDeskBegin).ok());
  REQUIRE(desk.store->Nodes()->size() == 1);
  const v1::Event drained = desk.Events().back();
  CHECK(drained.time_unix_ns() == kDeskBegin);
  CHECK(drained.node_changed().drained());
  CHECK(drained.node_changed().reason() == "new disk");
  Desk again({}, desk.store);
  REQUIRE(again.table.cluster().nodes_size() == 1);
  CHECK(again.table.cluster().nodes(0).reason() == "new disk");
  again.reconciler->Tick(kDeskBegin + kDeskHour);
  REQUIRE(again.reconciler->SetUse({"n2", true, "burnt", true}, kDeskBegin + kDeskHour).ok());
  CHECK(again.Events().back().node_changed().gone());
  // It is told once that a node is lost, and never of one that is gone.
  Desk third({}, desk.store);
  const size_t before = third.Events().size();
  third.reconciler->Tick(kDeskBegin + kDeskHour);
  CHECK(third.Events().size() == before);
  // Nobody waits for what it might have.
  const uint64_t job = third.Submit(1, kDeskBegin + kDeskHour);
  third.reconciler->Tick(kDeskBegin + kDeskHour);
  CHECK(third.table.Get(job)->waits_for().find("no node has any") != std::string::npos);
}

}  // namespace trireme::coordinator
