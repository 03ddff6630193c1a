// What passes by itself, at the moment when it is due: retries, agents that come back, old events
// and jobs, and a clock that is set.
#include <catch2/catch.hpp>

#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {
namespace {

using Catch::Contains;

constexpr int64_t kDue =
    kDeskBegin + 10 * kDeskSecond;  // the lease of those who have not dialled in

// Job 1 has failed once on n1 and is to be tried again.
struct Failed : Desk {
  explicit Failed(const ReconcilerOptions& options = {}) : Desk(options) {
    Dial("n1");
    Launch(Submit(1, kDeskBegin), kDeskBegin);
    Report("n1", Word(1, 1, v1::ATTEMPT_ENDED, 4), kDeskBegin);
    REQUIRE(StateOf(1) == v1::JOB_RECOVERING);
  }
};

void StoreEvents(Desk& desk, int count) {
  Change change;
  for (int i = 0; i < count; ++i) change.events.emplace_back().mutable_checkpointed()->set_step(1);
  REQUIRE(desk.store->Commit(change).ok());
}

void End(Desk& desk, uint64_t job, int64_t now) {
  REQUIRE(desk.reconciler->Ask(job, CancelAsked{"ann"}, 0, now).ok());
}

size_t JobsOf(Desk& desk) { return desk.store->Jobs()->size(); }

}  // namespace

TEST_CASE("without anything to wait for a tick comes once a second") {
  Desk desk;
  CHECK(desk.reconciler->Tick(kDeskBegin) == kDeskBegin + kDeskSecond);
  desk.Dial("n1");
  CHECK(desk.reconciler->Tick(kDeskBegin) == kDeskBegin + kDeskSecond);
  // The lease that ends first, and never in no time.
  ReconcilerOptions options;
  options.lease = std::chrono::milliseconds(300);
  Desk several(options);
  const int64_t later = kDeskBegin + 100'000'000;
  several.Dial("n1", later);
  several.Dial("n2", kDeskBegin);
  several.Dial("n3", later);
  CHECK(several.reconciler->Tick(later) == kDeskBegin + 300'000'000);
  CHECK(several.reconciler->Tick(kDeskBegin + 299'999'999) == kDeskBegin + 300'999'999);
}

TEST_CASE("a retry waits for agents until they are due and for no node that is gone") {
  Failed desk;
  Desk again({}, desk.store);
  const int64_t before = kDue - kDeskSecond / 2;
  CHECK(again.reconciler->Tick(before) == kDue);
  again.reconciler->Tick(kDue - 1);
  CHECK(again.StateOf(1) == v1::JOB_RECOVERING);
  again.reconciler->Tick(kDue);
  CHECK(again.StateOf(1) == v1::JOB_PENDING);
  Failed burnt;
  Desk first({}, burnt.store);
  REQUIRE(first.reconciler->SetUse({"n1", true, "burnt", true}, kDeskBegin).ok());
  Desk second({}, burnt.store);
  second.reconciler->Tick(kDue - 1);
  CHECK(second.StateOf(1) == v1::JOB_PENDING);
}

TEST_CASE("a retry goes on in its allocation without waiting for others") {
  Failed desk;
  desk.reconciler->Tick(desk.table.Get(1)->status().retry_at_unix_ns());
  CHECK(desk.StateOf(1) == v1::JOB_PLANNING);
  for (const v1::Event& event : desk.Events()) {
    CHECK_FALSE(event.state_changed().to() == v1::JOB_PENDING);
  }
}

TEST_CASE("a clock that was set back puts off neither retries nor what is shown") {
  Failed desk;
  desk.reconciler->Tick(kDeskBegin + 1);
  const int64_t back = kDeskBegin - 500 * kDeskSecond;
  desk.reconciler->ClockWasSet(-500 * kDeskSecond, back);
  desk.Report("n1", {}, back + 5);
  desk.reconciler->Tick(back + 5);
  CHECK(desk.StateOf(1) == v1::JOB_PLANNING);
  CHECK(desk.table.cluster().nodes(0).last_report_unix_ns() == back + 5);
}

TEST_CASE("a clock that was set leaves absent agents their time and nodes that are lost alone") {
  Failed desk;
  Desk again({}, desk.store);
  const auto told = [&again] {
    int lost = 0;
    for (const v1::Event& event : again.Events()) {
      lost += event.node_changed().state() == v1::NODE_LOST ? 1 : 0;
    }
    return lost;
  };
  again.reconciler->ClockWasSet(kDeskHour, kDeskBegin + kDeskHour);
  again.reconciler->Tick(kDue + kDeskHour - 1);
  CHECK(told() == 0);
  again.reconciler->Tick(kDue + kDeskHour);
  CHECK(told() == 1);
  // What was heard of a node that is lost is no longer moved.
  Desk lost;
  lost.Dial("n1");
  lost.reconciler->Tick(kDeskBegin + kDeskHour);
  lost.reconciler->ClockWasSet(kDeskHour, kDeskBegin + 2 * kDeskHour);
  lost.reconciler->Tick(kDeskBegin + 2 * kDeskHour);
  CHECK(lost.table.cluster().nodes(0).last_report_unix_ns() == kDeskBegin);
  // Of one that is ready the age stays.
  Desk ready;
  ready.Dial("n1");
  ready.reconciler->ClockWasSet(kDeskHour, kDeskBegin + kDeskHour + 4);
  ready.reconciler->Tick(kDeskBegin + kDeskHour + 4);
  CHECK(ready.table.cluster().nodes(0).last_report_unix_ns() == kDeskBegin + kDeskHour);
}

TEST_CASE("of two leases that end one after the other each is told in its time") {
  Desk desk;
  desk.Dial("n1");
  desk.Dial("n2", kDeskBegin + kDeskSecond);
  const size_t before = desk.Events().size();
  desk.reconciler->Tick(kDue);
  REQUIRE(desk.Events().size() == before + 1);
  CHECK(desk.Events().back().node_changed().node() == "n1");
  desk.reconciler->Tick(kDue + kDeskSecond);
  CHECK(desk.Events().size() == before + 2);
  // A node of which every report comes in time is told of no more.
  desk.Report("n2", {}, kDue + kDeskSecond);
  const size_t ready = desk.Events().size();
  desk.Report("n2", {}, kDue + kDeskSecond + 1);
  desk.Dial("n2", kDue + kDeskSecond + 2);
  CHECK(desk.Events().size() == ready);
}

TEST_CASE("events are dropped when they are one too many and not before") {
  for (const auto& [most, stored, left] :
       {std::tuple{10, 10, 10}, {10, 11, 10}, {0, 3, 1}, {2500, 5000, 2000}}) {
    CAPTURE(most, stored, left);
    Desk desk;
    StoreEvents(desk, stored);
    ReconcilerOptions options;
    options.most_events = static_cast<uint64_t>(most);
    Desk again(options, desk.store);
    // A full disk is no reason for haste; what more than a thousand are too many is.
    again.store->full = true;
    CHECK(again.reconciler->Tick(kDeskBegin) == kDeskBegin + kDeskSecond);
    again.store->full = false;
    const int64_t wait = stored > 1000 ? 1'000'000 : kDeskSecond;
    CHECK(again.reconciler->Tick(kDeskBegin + 1) == kDeskBegin + 1 + wait);
    for (int64_t now = 2; now < 10; ++now) again.reconciler->Tick(kDeskBegin + now);
    CHECK(again.Events().size() == static_cast<size_t>(left));
    // Nothing is left to do: no flush, and no haste.
    again.store->drops = 0;
    CHECK(again.reconciler->Tick(kDeskBegin + 10) == kDeskBegin + 10 + kDeskSecond);
    CHECK(again.store->drops == 0);
  }
}

TEST_CASE("ended jobs are dropped when they are enough to be worth it and not before") {
  for (const size_t most : {5, 20}) {
    CAPTURE(most);
    ReconcilerOptions options;
    options.most_ended_jobs = most;
    const size_t too_many = most == 5 ? 6 : 22;
    Desk desk(options);
    const uint64_t waits = desk.Submit(1, kDeskBegin);  // older than all that have ended
    int64_t now = kDeskBegin;
    const auto in_no_haste = [&] {
      ++now;
      return desk.reconciler->Tick(now) == now + kDeskSecond;
    };
    while (JobsOf(desk) < too_many) End(desk, desk.Submit(1, kDeskBegin), ++now);
    REQUIRE(JobsOf(desk) == too_many);  // one of them waits
    CHECK(in_no_haste());
    CHECK(desk.store->drops == 0);
    End(desk, desk.Submit(1, kDeskBegin), ++now);
    // A full disk is no reason for haste, and nothing is forgotten that it still has.
    desk.store->full = true;
    CHECK(in_no_haste());
    CHECK(desk.table.Get(2).ok());
    desk.store->full = false;
    CHECK(in_no_haste());
    CHECK(JobsOf(desk) == most + 1);
    CHECK(desk.table.Get(waits).ok());
    CHECK_FALSE(desk.table.Get(2).ok());
    CHECK(absl::IsNotFound(desk.reconciler->Ask(2, PauseAsked{"ann"}, 0, now).status()));
    desk.store->drops = 0;
    desk.reconciler->Tick(++now);
    CHECK(desk.store->drops == 0);
  }
}

TEST_CASE("of many ended jobs a thousand are dropped at a time") {
  Desk desk;
  Change change;
  for (uint64_t id = 1; id <= 1500; ++id) {
    v1::Job& job = change.jobs.emplace_back();
    job.set_id(id);
    job.set_owner("ann");
    job.mutable_status()->set_state(v1::JOB_COMPLETED);
    job.mutable_status()->set_changed_unix_ns(static_cast<int64_t>(id));
    change.request_ids.push_back("r" + std::to_string(id));
  }
  REQUIRE(desk.store->Commit(change).ok());
  ReconcilerOptions options;
  options.most_ended_jobs = 0;
  Desk again(options, desk.store);
  // All have to be known first: 500 are read at a time.
  for (int i = 0; i < 3; ++i) again.reconciler->Tick(kDeskBegin);
  CHECK(JobsOf(again) == 1500);
  CHECK(again.reconciler->Tick(kDeskBegin) == kDeskBegin + 1'000'000);
  CHECK(JobsOf(again) == 500);
  CHECK(again.reconciler->Tick(kDeskBegin + 1) == kDeskBegin + 1 + kDeskSecond);
  CHECK(JobsOf(again) == 0);
}

TEST_CASE("nodes are allocated when something has changed and not at every tick") {
  Desk desk;
  desk.Dial("n1");
  desk.Submit(100, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin);
  const auto is_told_why = [&] {
    return desk.table.Get(1)->waits_for().find("asks for 100 ranks") == 0;
  };
  REQUIRE(is_told_why());
  desk.table.PutWaits({}, {});
  desk.reconciler->Tick(kDeskBegin + 1);
  desk.Report("n1", {}, kDeskBegin + 2);
  desk.reconciler->Tick(kDeskBegin + 3);
  CHECK_FALSE(is_told_why());
  desk.Submit(1, kDeskBegin + 4);
  desk.reconciler->Tick(kDeskBegin + 4);
  CHECK(is_told_why());
}

TEST_CASE("the use of a node is what was set last") {
  Desk desk;
  desk.Dial("n1");
  desk.reconciler->Tick(kDeskBegin + kDeskHour);
  // Without `drained` nothing is gone, and without `gone` a drained node is not.
  CHECK_FALSE(desk.reconciler->SetUse({"n1", false, "", true}, kDeskBegin + kDeskHour)->gone());
  CHECK_FALSE(desk.reconciler->SetUse({"n1", true, "x", false}, kDeskBegin + kDeskHour)->gone());
  const v1::Node gone =
      *desk.reconciler->SetUse({"n1", true, "burnt", true}, kDeskBegin + kDeskHour);
  CHECK(gone.gone());
  desk.Submit(1, kDeskBegin + kDeskHour);
  desk.reconciler->Tick(kDeskBegin + kDeskHour);
  CHECK_THAT(desk.table.Get(1)->waits_for(), Contains("gone") || Contains("no node"));
  desk.Dial("n1", kDeskBegin + kDeskHour);
  desk.reconciler->Tick(kDeskBegin + kDeskHour);
  CHECK_THAT(desk.table.Get(1)->waits_for(), Contains("drained: burnt"));
}

TEST_CASE("who has drained a node is kept with the time, and told with each change") {
  Desk desk;
  desk.Dial("n1");
  const auto by_whom = [](Desk& at) {
    const auto events = at.table.EventsAfter(at.table.last_sequence() - 1, 1);
    REQUIRE(events->size() == 1);
    return events->at(0).node_changed().by();
  };
  const v1::Node drained =
      *desk.reconciler->SetUse({"n1", true, "new disk", false, "anna"}, kDeskBegin + 1);
  CHECK(drained.drained_by() == "anna");
  CHECK(drained.drained_unix_ns() == kDeskBegin + 1);
  CHECK(by_whom(desk) == "anna");
  // By a restart it is not forgotten, nor by the agent's words.
  Desk again({}, desk.store);
  again.Dial("n1");
  again.reconciler->Tick(kDeskBegin + 2);
  CHECK(again.table.cluster().nodes(0).drained_by() == "anna");
  CHECK(again.table.cluster().nodes(0).drained_unix_ns() == kDeskBegin + 1);
  const v1::Node back = *again.reconciler->SetUse({"n1", false, "", false, "ben"}, kDeskBegin + 3);
  CHECK(back.drained_by().empty());
  CHECK(back.drained_unix_ns() == 0);
  CHECK(by_whom(again) == "ben");
}

}  // namespace trireme::coordinator
