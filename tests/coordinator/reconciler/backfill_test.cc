// Reservations from the time limits of jobs, over turns and clocks.
#include <catch2/catch.hpp>
#include <string>

#include "tests/coordinator/reconciler/desk.h"
#include "tests/coordinator/reconciler/turn_each_second.h"

namespace trireme::coordinator {
namespace {

Submission Hours(int hours) {
  Submission submission;
  submission.job.mutable_resources()->set_time_limit_seconds(3600.0 * hours);
  submission.job.mutable_runtime()->set_deadline_seconds(60);
  return submission;
}

// Job 1 runs on three of four CPUs, for three hours at most; job 2 waits for all of them.
struct Reserved : Desk {
  Reserved() {
    Dial("n1");
    Submit(3, kDeskBegin, Hours(3));
    Launch(1, kDeskBegin);
    Submit(4, kDeskBegin, Hours(1));
    reconciler->Tick(kDeskBegin);
  }
  std::string WaitOf(uint64_t job) const { return table.Get(job)->waits_for(); }
};

TEST_CASE("backfill: the reconciler reserves by time limits and starts what ends before") {
  Reserved desk;
  CHECK(desk.WaitOf(2) ==
        "waits for 4 CPUs; 1 of 4 are free; starts when job 1 ends, in 3 h 2 min at the latest");
  desk.Submit(1, kDeskBegin, Hours(4));
  desk.Submit(1, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin);
  CHECK(desk.StateOf(3) == v1::JOB_PENDING);
  CHECK(desk.StateOf(4) == v1::JOB_PENDING);
  CHECK(desk.WaitOf(3).find("would not end before job 2 starts there") != std::string::npos);
  desk.Submit(1, kDeskBegin, Hours(2));
  desk.reconciler->Tick(kDeskBegin);
  CHECK(desk.StateOf(5) == v1::JOB_PLANNING);
  // Before it is submitted one is told the same.
  v1::ResourceRequest asks;
  asks.set_ranks(1);
  asks.set_cpus_per_rank(1);
  CHECK(desk.reconciler->WouldWaitFor(asks, Hours(9).job, kDeskBegin) ==
        "waits for 1 CPU; 0 of 4 are free; 3 jobs are before it; starts when job 2 ends, in 4 h 4 "
        "min at the latest");
}

// Two nodes, whose names a store of before knows; job 1 needs both, job 2 one of them for ever.
struct DialledIn {
  explicit DialledIn(bool drained = false) {
    store = Desk().store;
    Change change;
    for (const char* name : {"n1", "n2"}) {
      v1::Node& node = change.nodes.emplace_back();
      node.set_name(name);
      node.set_holder("an agent");
    }
    change.nodes[1].set_drained(drained);
    REQUIRE(store->Commit(change).ok());
    again = std::make_unique<Desk>(ReconcilerOptions{}, store);
    again->Submit(8, kDeskBegin, Hours(1));
    again->Submit(1, kDeskBegin);
  }
  v1::JobState StateOf(uint64_t job) const { return again->StateOf(job); }
  std::shared_ptr<DeskStore> store;
  std::unique_ptr<Desk> again;
};

TEST_CASE("backfill: while agents dial in after a start nobody passes one that waits") {
  DialledIn desk;
  Desk& again = *desk.again;
  again.Dial("n1");
  again.reconciler->Tick(kDeskBegin + 1);
  CHECK(desk.StateOf(1) == v1::JOB_PENDING);
  CHECK(desk.StateOf(2) == v1::JOB_PENDING);
  SECTION("they are all there") {
    again.Dial("n2");
    again.reconciler->Tick(kDeskBegin + 2);
    CHECK(desk.StateOf(1) == v1::JOB_PLANNING);
  }
  SECTION("one does not come in its lease") {
    again.Report("n1", {}, kDeskBegin + 11 * kDeskSecond);
    TurnEachSecond(*again.reconciler, kDeskBegin, kDeskBegin + 11 * kDeskSecond);
    CHECK(desk.StateOf(1) == v1::JOB_PENDING);
    CHECK(desk.StateOf(2) == v1::JOB_PLANNING);
  }
}

TEST_CASE("backfill: a start waits for no node on which nothing is placed") {
  DialledIn desk(true);
  desk.again->Dial("n1");
  desk.again->reconciler->Tick(kDeskBegin + 1);
  CHECK(desk.StateOf(2) == v1::JOB_PLANNING);
}

TEST_CASE("backfill: what is told of a reservation ages no more than a minute") {
  Reserved desk;
  desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_RUNNING), kDeskBegin);
  for (int64_t minute = 1; minute <= 62; ++minute) {
    const int64_t now = kDeskBegin + minute * 60 * kDeskSecond;
    desk.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_RUNNING), now);
    desk.reconciler->Tick(now);
  }
  CHECK(desk.WaitOf(2).find("in 2 h at the latest") != std::string::npos);
  // Of its own time a job that waits uses nothing, and what has run has less left.
  desk.Submit(1, kDeskBegin + kDeskHour, Hours(2));
  desk.reconciler->Tick(kDeskBegin + 63 * 60 * kDeskSecond);
  CHECK(desk.StateOf(3) == v1::JOB_PENDING);
}

TEST_CASE("backfill: a clock that is set moves reservations with it") {
  Reserved desk;
  const int64_t step = 30 * kDeskHour;
  desk.reconciler->ClockWasSet(step, kDeskBegin + step);
  desk.Report("n1", {}, kDeskBegin + step + 60 * kDeskSecond);
  desk.reconciler->Tick(kDeskBegin + step + 60 * kDeskSecond);
  CHECK(desk.WaitOf(2).find("in 3 h 1 min at the latest") != std::string::npos);
}

}  // namespace
}  // namespace trireme::coordinator
