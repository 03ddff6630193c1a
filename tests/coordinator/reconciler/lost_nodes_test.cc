// Jobs whose nodes are lost: when they go on elsewhere, and when they wait.
#include <algorithm>
#include <catch2/catch.hpp>

#include "coordinator/reconciler/node_leases.h"
#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {
namespace {

// From the last word to the next attempt.
constexpr int64_t kAfter = 60 * kDeskSecond;
// To the end of its claim: 20.2 s.
constexpr int64_t kRevoke = 20 * kDeskSecond;

// A job of eight ranks on n1 and n2; n3 and n4 are free.
struct LostDesk : Desk {
  explicit LostDesk(const char* policy = "restart", const ReconcilerOptions& options = {})
      : Desk(options) {
    for (const char* node : {"n1", "n2", "n3", "n4"}) Dial(node);
    Submission submission;
    submission.job.mutable_resources()->set_on_lost_node(policy);
    job = Submit(8, kDeskBegin, submission);
    Launch(job, kDeskBegin);
  }
  v1::NodeReport Fenced(double seconds) const {
    v1::NodeReport report = Word(job, 1, v1::ATTEMPT_RUNNING);
    report.mutable_attempts(0)->set_ends_after_seconds(seconds);
    return report;
  }
  // As its agents were told.
  double EndAfterOf(const std::string& node) const {
    return reconciler->DesiredOf(node).attempts(0).end_after_seconds();
  }
  void FenceAll(int64_t now) {
    const double seconds = EndAfterOf("n1");
    Report("n1", Fenced(seconds), now);
    Report("n2", Fenced(seconds), now);
  }
  // The run folder's disk.
  void Answer(int64_t now) {
    for (const v1::Job& one : std::exchange(revocations, {})) {
      ++revoked;
      REQUIRE(reconciler->Revoked(one.id(), one.status().attempt(), disk, now).ok());
    }
  }
  // All but n2 speak once a second, of all that is there.
  void Pass(int64_t from, int64_t to) {
    for (int64_t now = from; now < to; now += kDeskSecond) {
      for (const char* node : {"n3", "n4"}) Report(node, {}, now);
      Report("n1",
             DesiredOn("n1") == v1::ATTEMPT_RUN ? Fenced(EndAfterOf("n1"))
                                                : Word(job, 1, v1::ATTEMPT_ENDED, 137),
             now);
      reconciler->Tick(now);
      Answer(now);
    }
  }
  // All speak once a second.
  void PassWithAll(int64_t from, int64_t to) {
    for (int64_t now = from; now < to; now += kDeskSecond) {
      Report("n2", Fenced(EndAfterOf("n2")), now);
      Pass(now, now + kDeskSecond);
    }
  }
  int LostNodes() const {
    const std::vector<v1::Event> events = Events();
    return static_cast<int>(std::count_if(events.begin(), events.end(), [](const v1::Event& event) {
      return event.node_changed().state() == v1::NODE_LOST;
    }));
  }
  uint64_t job = 0;
  absl::Status disk;
  int revoked = 0;
};

}  // namespace

TEST_CASE("lost node: agents are told to end what is cut off well before others may begin") {
  const LostDesk desk;
  const LostNodeTimes times = LostNodeTimesOf(std::chrono::seconds(60));
  CHECK(times.revoke + times.fence == std::chrono::seconds(60));
  CHECK(times.revoke > std::chrono::seconds(10));  // the lease
  // docs/operations.md: an agent may be away for so long.
  CHECK(times.revoke >= std::chrono::seconds(20));
  // Those who are told, and then those who stepped with them to their end.
  CHECK(times.fence >= (times.end_after + std::chrono::seconds(24)) * 1.02);
  CHECK(LostNodeTimesOf(std::chrono::seconds(50)).revoke > std::chrono::seconds(10));
  CHECK(desk.EndAfterOf("n1") == 15);
  CHECK(LostDesk("wait").EndAfterOf("n2") == 0);
  ReconcilerOptions never;
  never.lost_node_after = std::chrono::milliseconds(0);
  CHECK(LostDesk("restart", never).EndAfterOf("n2") == 0);
}

TEST_CASE("lost node: a fenced job goes on elsewhere when its time has passed, not before") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  desk.Pass(last + kDeskSecond, last + kRevoke);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RUNNING);
  CHECK(desk.table.Get(desk.job)->waits_for().find("60 s after") != std::string::npos);
  CHECK(desk.revoked == 0);
  // From here on it does not count, and is ended where it can be.
  desk.Pass(last + kRevoke, last + kAfter);
  CHECK(desk.revoked == 1);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RECOVERING);
  CHECK(desk.table.Get(desk.job)->status().attempt_live());
  desk.Pass(last + kAfter, last + kAfter + 60 * kDeskSecond);
  const v1::Job after = *desk.table.Get(desk.job);
  CHECK(after.status().state() == v1::JOB_PLANNING);
  CHECK(after.status().attempt() == 2);
  REQUIRE(after.allocation_size() == 2);
  for (const v1::NodeAllocation& part : after.allocation()) CHECK(part.node() != "n2");
  // Whoever comes back is to end what it has.
  desk.Dial("n2", last + kAfter + 61 * kDeskSecond);
  CHECK(desk.reconciler->DesiredOf("n2").attempts().empty());
}

TEST_CASE("lost node: without the word of each of its agents a job waits") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  SECTION("one has read no claim") {
    desk.Report("n1", desk.Fenced(desk.EndAfterOf("n1")), last);
    desk.Report("n2", desk.Fenced(0), last);
  }
  SECTION("one waits for longer than this daemon does") {
    desk.Report("n1", desk.Fenced(desk.EndAfterOf("n1")), last);
    desk.Report("n2", desk.Fenced(desk.EndAfterOf("n2") + 1), last);
  }
  SECTION("the first waits for longer than this daemon does") {
    desk.Report("n1", desk.Fenced(desk.EndAfterOf("n1") + 1), last);
    desk.Report("n2", desk.Fenced(desk.EndAfterOf("n2")), last);
  }
  desk.Pass(last + kDeskSecond, last + 10 * kAfter);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RUNNING);
  CHECK(desk.table.Get(desk.job)->waits_for().find("not started elsewhere") != std::string::npos);
}

TEST_CASE("lost node: a job that is to wait does, for ever") {
  LostDesk desk("wait");
  desk.Report("n1", desk.Fenced(1), kDeskBegin);
  desk.Report("n2", desk.Fenced(1), kDeskBegin);
  desk.Pass(kDeskBegin + kDeskSecond, kDeskBegin + 10 * kAfter);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RUNNING);
}

TEST_CASE("lost node: where no other nodes can hold it nothing is won by its end") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  for (const char* node : {"n3", "n4"}) {
    REQUIRE(desk.reconciler->SetUse({node, true, "test"}, last).ok());
  }
  desk.Pass(last + kDeskSecond, last + 10 * kAfter);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RUNNING);
  // It is back, and nothing was lost.
  desk.Report("n2", desk.Fenced(1), last + 10 * kAfter);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RUNNING);
  CHECK(desk.table.Get(desk.job)->status().attempt() == 1);
}

TEST_CASE("lost node: where another agent waits for its name it is replaced all the same") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  // Of a name that is kept: its holder has spoken since.
  desk.reconciler->NameWanted("n2");
  desk.FenceAll(last);
  for (const char* node : {"n3", "n4"}) {
    REQUIRE(desk.reconciler->SetUse({node, true, "test"}, last).ok());
  }
  desk.Pass(last + kDeskSecond, last + 2 * kAfter);
  CHECK(desk.revoked == 0);
  desk.reconciler->NameWanted("n2");
  desk.Pass(last + 2 * kAfter, last + 2 * kAfter + 5 * kDeskSecond);
  CHECK(desk.revoked == 1);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RECOVERING);
  // Not before all that may live has ended; then the other one is let in.
  CHECK(NameTurnOf(desk.table, {}, "n2", NameAsker::kAnother).lease > std::chrono::hours(1));
  desk.Pass(last + 2 * kAfter + 5 * kDeskSecond, last + 3 * kAfter);
  CHECK(desk.StateOf(desk.job) == v1::JOB_PENDING);
  CHECK(NameTurnOf(desk.table, {}, "n2", NameAsker::kAnother).lease == std::chrono::hours(0));
}

TEST_CASE("lost node: where another agent waits for the name of one of two, too") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  for (const char* node : {"n3", "n4"}) {
    REQUIRE(desk.reconciler->SetUse({node, true, "test"}, last).ok());
  }
  desk.reconciler->NameWanted("n2");
  for (int64_t now = last; now < last + kRevoke + 3 * kDeskSecond; now += kDeskSecond) {
    desk.reconciler->Tick(now);
    desk.Answer(now);
  }
  CHECK(desk.revoked == 1);
}

TEST_CASE("lost node: one that is to be cancelled ends also where no other nodes can hold it") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  for (const char* node : {"n3", "n4"}) {
    REQUIRE(desk.reconciler->SetUse({node, true, "test"}, last).ok());
  }
  REQUIRE(desk.reconciler->Ask(desk.job, CancelAsked{"ann"}, 1, last).ok());
  desk.Pass(last + kDeskSecond, last + kAfter + 5 * kDeskSecond);
  CHECK(desk.StateOf(desk.job) == v1::JOB_CANCELLED);
  CHECK(desk.table.Get(desk.job)->allocation().empty());
}

TEST_CASE("lost node: nothing is replaced while the disk does not take its claim away") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  desk.disk = absl::UnavailableError("no room");
  desk.Pass(last + kDeskSecond, last + 3 * kAfter);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RUNNING);
  // Each five seconds at most: a try may cost a thread that waits for the disk, and a line in the
  // log.
  CHECK(desk.revoked > 1);
  CHECK(desk.revoked <= 3 * kAfter / (5 * kDeskSecond));
  desk.disk = absl::OkStatus();
  desk.Pass(last + 3 * kAfter, last + 3 * kAfter + 2 * kDeskSecond);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RECOVERING);
  // Not before whoever cannot read it must have ended.
  desk.Pass(last + 3 * kAfter + 2 * kDeskSecond, last + 3 * kAfter + 38 * kDeskSecond);
  CHECK(desk.table.Get(desk.job)->status().attempt_live());
  desk.Pass(last + 3 * kAfter + 38 * kDeskSecond, last + 3 * kAfter + 43 * kDeskSecond);
  CHECK(!desk.table.Get(desk.job)->status().attempt_live());
}

TEST_CASE("lost node: what the store does not take is asked for again") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  desk.Pass(last + kDeskSecond, last + kRevoke);
  const int64_t late = last + kRevoke + kDeskSecond;
  desk.reconciler->Tick(late);
  REQUIRE(desk.revocations.size() == 1);
  desk.store->full = true;
  CHECK(!desk.reconciler->Revoked(desk.job, 1, absl::OkStatus(), late).ok());
  CHECK(desk.StateOf(desk.job) == v1::JOB_RUNNING);
  desk.store->full = false;
  desk.revocations.clear();
  desk.reconciler->Tick(late + 4 * kDeskSecond);
  CHECK(desk.revocations.empty());
  const int64_t again = late + 5 * kDeskSecond;
  desk.reconciler->Tick(again);
  CHECK(desk.revocations.size() == 1);
  desk.Answer(again);
  CHECK(desk.StateOf(desk.job) == v1::JOB_RECOVERING);
}

TEST_CASE("lost node: a clock that is set back makes no fence short") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskHour;
  desk.FenceAll(last);
  desk.Pass(last + kDeskSecond, last + kRevoke);
  desk.reconciler->Tick(last + kRevoke + kDeskSecond);
  // It is set back, the claim is written, and only then seen.
  const int64_t back = last + kRevoke + kDeskSecond - 600 * kDeskSecond;
  desk.Answer(back);
  desk.reconciler->ClockWasSet(-600 * kDeskSecond, back);
  desk.Pass(back, back + 39 * kDeskSecond);
  CHECK(desk.table.Get(desk.job)->status().attempt_live());
  desk.Pass(back + 39 * kDeskSecond, back + 43 * kDeskSecond);
  CHECK(!desk.table.Get(desk.job)->status().attempt_live());
}

TEST_CASE("lost node: one that comes back after its job was given up ends it, at once") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  desk.Pass(last + kDeskSecond, last + kRevoke + 3 * kDeskSecond);
  REQUIRE(desk.StateOf(desk.job) == v1::JOB_RECOVERING);
  desk.Report("n2", desk.Fenced(15), last + kRevoke + 3 * kDeskSecond);
  CHECK(desk.DesiredOn("n2") == v1::ATTEMPT_KILL);
  desk.Report("n2", Desk::Word(desk.job, 1, v1::ATTEMPT_ENDED, 137),
              last + kRevoke + 4 * kDeskSecond);
  CHECK(!desk.table.Get(desk.job)->status().attempt_live());
}

// It had heard nothing of that: the time in which it ends by itself begins with its last word.
TEST_CASE("lost node: one that speaks once more after its job was given up has its time anew") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  const int64_t heard = last + kRevoke + 25 * kDeskSecond;
  desk.Pass(last + kDeskSecond, heard);
  REQUIRE(desk.StateOf(desk.job) == v1::JOB_RECOVERING);
  desk.Report("n2", desk.Fenced(15), heard);
  const int64_t fence = kAfter - kRevoke;
  desk.Pass(heard + kDeskSecond, heard + fence - kDeskSecond);
  CHECK(desk.table.Get(desk.job)->status().attempt_live());
  CHECK(desk.table.Get(desk.job)->status().attempt() == 1);
  desk.Pass(heard + fence - kDeskSecond, heard + fence + 60 * kDeskSecond);
  CHECK(desk.table.Get(desk.job)->status().attempt() == 2);
}

TEST_CASE("lost node: a node that speaks in time keeps its job") {
  LostDesk desk;
  int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  for (int round = 0; round < 3; ++round) {
    desk.Pass(last + kDeskSecond, last + kRevoke);
    last += kRevoke;
    desk.Report("n2", desk.Fenced(desk.EndAfterOf("n2")), last);
  }
  CHECK(desk.StateOf(desk.job) == v1::JOB_RUNNING);
  CHECK(desk.table.Get(desk.job)->status().attempt() == 1);
}

TEST_CASE("lost node: a daemon that is started anew counts from its own start") {
  auto first = std::make_unique<LostDesk>();
  first->FenceAll(kDeskBegin);
  const uint64_t job = first->job;
  const auto kept = first->store;
  first.reset();
  Desk desk({}, kept);  // it opens at kDeskBegin, too
  for (const char* node : {"n1", "n3", "n4"}) desk.Dial(node);
  const auto pass = [&](int64_t from, int64_t to) {
    for (int64_t now = from; now < to; now += kDeskSecond) {
      for (const char* node : {"n3", "n4"}) desk.Report(node, {}, now);
      desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_RUNNING), now);
      desk.reconciler->Tick(now);
      for (const v1::Job& one : std::exchange(desk.revocations, {})) {
        REQUIRE(desk.reconciler->Revoked(one.id(), 1, absl::OkStatus(), now).ok());
      }
    }
  };
  pass(kDeskBegin, kDeskBegin + kRevoke);
  CHECK(desk.StateOf(job) == v1::JOB_RUNNING);
  pass(kDeskBegin + kRevoke, kDeskBegin + kRevoke + 3 * kDeskSecond);
  CHECK(desk.StateOf(job) == v1::JOB_RECOVERING);
  CHECK(desk.DesiredOn("n1") == v1::ATTEMPT_KILL);
}

TEST_CASE("lost node: a clock that jumps makes nobody late") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  desk.Pass(last + kDeskSecond, last + 12 * kDeskSecond);  // it is lost
  const int64_t jump = kDeskHour;
  desk.reconciler->ClockWasSet(jump, last + 12 * kDeskSecond + jump);
  desk.Pass(last + 12 * kDeskSecond + jump, last + kRevoke + jump);
  CHECK(desk.revoked == 0);
  desk.Pass(last + kRevoke + jump, last + kRevoke + 2 * kDeskSecond + jump);
  CHECK(desk.revoked == 1);
  // Nor is anybody sooner gone.
  desk.reconciler->ClockWasSet(jump, last + kRevoke + 2 * kDeskSecond + 2 * jump);
  desk.Pass(last + kRevoke + 2 * kDeskSecond + 2 * jump, last + kAfter + 2 * jump - kDeskSecond);
  CHECK(desk.table.Get(desk.job)->status().attempt_live());
  desk.Pass(last + kAfter + 2 * jump - kDeskSecond, last + kAfter + 2 * jump + 3 * kDeskSecond);
  CHECK(!desk.table.Get(desk.job)->status().attempt_live());
}

// A commit that a disk has held, or a process that was stopped: the agents have spoken meanwhile,
// and what they have said is still to be acted on.
TEST_CASE("lost node: a daemon that stood still takes nobody for silent") {
  LostDesk desk;
  const int64_t last = kDeskBegin + 5 * kDeskSecond;
  desk.PassWithAll(kDeskBegin, last);
  const bool pausing = GENERATE(false, true);
  CAPTURE(pausing);
  if (pausing) REQUIRE(desk.reconciler->Ask(desk.job, PauseAsked{"ann"}, 1, last).ok());
  const int64_t back = last + 30 * kDeskSecond;
  desk.reconciler->Tick(back);
  for (const char* node : {"n3", "n4"}) {
    desk.Report(node, {}, back);
    desk.reconciler->Tick(back);
  }
  CHECK(desk.revocations.empty());
  CHECK(desk.LostNodes() == 0);
  CHECK(desk.stood_still_ns == 30 * kDeskSecond);
  CHECK(desk.table.cluster().started_unix_ns() == kDeskBegin);
  // Who is silent from then on is left in the time that he has, of which none is gone yet.
  desk.Pass(back, back + kRevoke - 2 * kDeskSecond);
  CHECK(desk.revoked == 0);
  CHECK(desk.LostNodes() == 1);
  desk.Pass(back + kRevoke - 2 * kDeskSecond, back + kRevoke + kDeskSecond);
  CHECK(desk.revoked == 1);
}

TEST_CASE("lost node: a daemon that stood still as it began gives agents their time") {
  auto first = std::make_unique<LostDesk>();
  first->FenceAll(kDeskBegin);
  const auto kept = first->store;
  first.reset();
  Desk desk({}, kept);
  const int64_t back = kDeskBegin + 30 * kDeskSecond;
  // In its first turn, or before: nobody can dial in until it listens.
  if (GENERATE(false, true)) {
    desk.reconciler->Tick(kDeskBegin);
  } else {
    desk.reconciler->Listens(back);
  }
  desk.reconciler->Tick(back);
  for (const char* node : {"n3", "n4"}) {
    desk.Dial(node, back);
    desk.reconciler->Tick(back);
  }
  CHECK(desk.revocations.empty());
  for (const v1::Event& event : desk.Events()) {
    CHECK(event.node_changed().state() != v1::NODE_LOST);
  }
}

TEST_CASE("lost node: who has spoken is not silent before that is acted on") {
  LostDesk desk;
  const int64_t last = kDeskBegin + 5 * kDeskSecond;
  desk.PassWithAll(kDeskBegin, last);
  const std::set<std::string> all = {"n1", "n2", "n3", "n4", "nobody"};
  int64_t now = last;
  for (; now < last + 60 * kDeskSecond; now += kDeskSecond) {
    desk.reconciler->Spoke(all, now);
    desk.reconciler->Tick(now);
  }
  CHECK(desk.LostNodes() == 0);
  CHECK(desk.revocations.empty());
  // Of one that is lost its words count as well: it is not given up while it speaks.
  desk.Pass(now, now + 12 * kDeskSecond);
  REQUIRE(desk.LostNodes() == 1);
  for (now += 12 * kDeskSecond; now < last + 120 * kDeskSecond; now += kDeskSecond) {
    desk.reconciler->Spoke({"n2"}, now);
    desk.Pass(now, now + kDeskSecond);
  }
  CHECK(desk.revoked == 0);
  desk.Pass(now, now + kRevoke + 2 * kDeskSecond);
  CHECK(desk.revoked == 1);
}

// The order to end goes out when the end of the claim is stored, not before.
TEST_CASE("lost node: a disk that holds the end of a claim makes no fence short") {
  LostDesk desk;
  const int64_t last = kDeskBegin + kDeskSecond;
  desk.FenceAll(last);
  desk.Pass(last + kDeskSecond, last + kRevoke + 2 * kDeskSecond);
  REQUIRE(desk.revoked == 1);
  const int64_t held = 25 * kDeskSecond;
  const int64_t told = last + kRevoke + kDeskSecond + held;
  desk.Pass(told, told + 38 * kDeskSecond);
  CHECK(desk.table.Get(desk.job)->status().attempt_live());
  desk.Pass(told + 38 * kDeskSecond, told + 42 * kDeskSecond);
  CHECK(!desk.table.Get(desk.job)->status().attempt_live());
}

TEST_CASE("lost node: a report is taken when it has been acted on, and named") {
  std::vector<std::pair<std::string, uint64_t>> taken;
  auto store = JobStore::Open(":memory:");
  REQUIRE(store.ok());
  JobTable table;
  ReconcilerPorts ports{.make_plan = [](const v1::Job&) {},
                        .desired_changed = [](const std::string&) {}};
  ports.report_taken = [&](const std::string& node, uint64_t number) {
    taken.emplace_back(node, number);
  };
  const auto reconciler = Reconciler::Open({}, ports, **store, table, kDeskBegin);
  REQUIRE(reconciler.ok());
  v1::AgentHello hello;
  hello.set_node("n1");
  REQUIRE((*reconciler)->Hello(hello, kDeskBegin).ok());
  v1::NodeReport report;
  report.set_number(17);
  REQUIRE((*reconciler)->Report("n1", report, kDeskBegin).ok());
  CHECK(taken == std::vector<std::pair<std::string, uint64_t>>{{"n1", 17}});
}

}  // namespace trireme::coordinator
