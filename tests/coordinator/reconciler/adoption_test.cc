// Nodes that serve another store, or another history of this one, and what they hold.
#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kNow = kDeskBegin;

// Whose store a daemon has begun to use.
std::shared_ptr<DeskStore> Begun(std::shared_ptr<DeskStore> store) {
  if (store == nullptr) store = std::make_shared<DeskStore>(JobStore::Open(":memory:").value());
  REQUIRE(store->BeginEpoch().ok());
  return store;
}

struct AdoptionDesk : Desk {
  // `kept`: as of Desk.
  explicit AdoptionDesk(std::shared_ptr<DeskStore> kept = nullptr)
      : Desk({}, Begun(std::move(kept))) {}

  std::string Us() const { return store->identity().store(); }

  void DialServing(const std::string& node, const v1::StorePosition& served) {
    v1::AgentHello hello;
    hello.set_node(node);
    hello.set_cpus(4);
    hello.set_memory_bytes(uint64_t{1} << 40);
    *hello.mutable_served() = served;
    REQUIRE(reconciler->Hello(hello, kNow).ok());
  }
  // Of an agent that refuses, and holds one attempt with ranks on `nodes`.
  v1::NodeReport Refusal(const std::string& of_store, uint64_t job, uint32_t attempt,
                         const std::vector<std::string>& nodes) const {
    v1::NodeReport report = Word(job, attempt, v1::ATTEMPT_RUNNING);
    report.mutable_refuses_for()->set_store(of_store);
    v1::AttemptReport& held = *report.mutable_attempts(0);
    held.mutable_store()->set_store(of_store);
    held.mutable_store()->set_epoch(9);
    for (const std::string& node : nodes) {
      v1::NodeAllocation& part = *held.add_allocation();
      part.set_node(node);
      part.set_ranks(1);
    }
    return report;
  }
  v1::Node NodeOf(const std::string& name) const {
    const v1::Cluster cluster = table.cluster();
    for (const v1::Node& node : cluster.nodes()) {
      if (node.name() == name) return node;
    }
    return {};
  }
  v1::StorePosition Later() const {
    v1::StorePosition later = store->identity().At(*store->LastSequence());
    later.set_sequence(later.sequence() + 100);
    return later;
  }
};

TEST_CASE(
    "adoption: a node that served a later state gets nothing to do, also before its first word") {
  AdoptionDesk desk;
  desk.DialServing("n1", desk.Later());
  CHECK(desk.NodeOf("n1").refuses_for() == desk.Us());
  const uint64_t job = desk.Submit(1, kNow);
  desk.reconciler->Tick(kNow);
  CHECK(desk.StateOf(job) == v1::JOB_PENDING);
  CHECK(desk.table.Get(job)->waits_for().find("trireme nodes adopt n1") != std::string::npos);
  // One that goes on from what this store holds is used.
  desk.DialServing("n1", desk.store->identity().At(0));
  CHECK(desk.NodeOf("n1").refuses_for().empty());
  desk.reconciler->Tick(kNow);
  CHECK(desk.StateOf(job) == v1::JOB_PLANNING);
}

TEST_CASE(
    "adoption: what is held of another store's jobs is shown, never taken for ours, and ended") {
  AdoptionDesk desk;
  v1::StorePosition other;
  other.set_store("other");
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kNow);
  desk.Launch(job, kNow);  // as job 1, attempt 1
  desk.DialServing("n1", other);
  desk.Report("n1", desk.Refusal("other", job, 1, {"n1"}), kNow);
  CHECK(desk.StateOf(job) == v1::JOB_LAUNCHING);
  REQUIRE(desk.NodeOf("n1").held_size() == 1);
  CHECK(desk.NodeOf("n1").held(0).store() == "other");
  CHECK(desk.NodeOf("n1").held(0).job_id() == job);
  const auto adopted = desk.reconciler->AdoptNode("n1", kNow, "anna");
  REQUIRE(adopted.ok());
  const auto told = desk.table.EventsAfter(desk.table.last_sequence() - 1, 1);
  REQUIRE(told->size() == 1);
  CHECK(told->at(0).node_changed().node() == "n1");
  CHECK(told->at(0).node_changed().reason() == "adopted");
  CHECK(told->at(0).node_changed().by() == "anna");
  CHECK(adopted->kept_size() == 0);
  CHECK(adopted->ended_size() == 1);
  CHECK(desk.adopted.at("n1") == desk.reconciler->DesiredOf("n1").revision());
  CHECK(desk.told.contains("n1"));
  // It says so itself when it obeys.
  desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_STARTING), kNow);
  CHECK(desk.NodeOf("n1").refuses_for().empty());
  CHECK(desk.NodeOf("n1").held_size() == 0);
}

TEST_CASE("adoption: a newer attempt of a job of this store goes on as the job's own") {
  AdoptionDesk desk;
  desk.Dial("n1");
  desk.Dial("n2");
  const uint64_t job = desk.Submit(1, kNow);
  const bool launched = GENERATE(false, true);
  if (launched) desk.Launch(job, kNow);
  desk.DialServing("n1", desk.Later());
  desk.DialServing("n2", desk.Later());
  desk.Report("n1", desk.Refusal(desk.Us(), job, 3, {"n1", "n2"}), kNow);
  desk.Report("n2", desk.Refusal(desk.Us(), job, 3, {"n1", "n2"}), kNow);
  CHECK(desk.StateOf(job) == (launched ? v1::JOB_LAUNCHING : v1::JOB_PENDING));
  const auto first = desk.reconciler->AdoptNode("n1", kNow);
  REQUIRE(first.ok());
  CHECK(first->kept_size() == 1);
  CHECK(first->ended_size() == 0);
  const v1::Job taken = *desk.table.Get(job);
  CHECK(taken.status().attempt() == 3);
  CHECK(taken.status().attempt_live());
  CHECK(taken.allocation_size() == 2);
  CHECK(taken.launch_store().epoch() == 9);
  const v1::DesiredAttempts desired = desk.reconciler->DesiredOf("n1");
  REQUIRE(desired.attempts_size() == 1);
  CHECK(desired.attempts(0).attempt() == 3);
  CHECK(desired.attempts(0).desired_state() == v1::ATTEMPT_RUN);
  CHECK(desired.attempts(0).launch().store().epoch() == 9);
  CHECK(desired.attempts(0).launch().key().empty());  // not that of attempt 1
  CHECK(desired.revision() >= desk.adopted.at("n1"));
  // The other node of it is known by now.
  const auto second = desk.reconciler->AdoptNode("n2", kNow);
  REQUIRE(second.ok());
  CHECK(second->kept_size() == 1);
  // Words of both count, and the job ends by them.
  for (const char* node : {"n1", "n2"}) {
    v1::NodeReport end = Desk::Word(job, 3, v1::ATTEMPT_ENDED, 0);
    *end.mutable_attempts(0)->mutable_store() = taken.launch_store();
    desk.Report(node, end, kNow);
  }
  CHECK(desk.StateOf(job) == v1::JOB_COMPLETED);
}

TEST_CASE(
    "adoption: of jobs that have ended here, or are older, or are elsewhere, nothing is taken") {
  AdoptionDesk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kNow);
  desk.Launch(job, kNow);
  const auto held = [&]() -> v1::NodeReport {
    switch (GENERATE(0, 1, 2)) {
      case 0:
        return desk.Refusal(desk.Us(), job + 7, 1, {"n1"});
      case 1:
        return desk.Refusal(desk.Us(), job, 4, {"n2"});
      default:
        desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_ENDED, 0), kNow);
        return desk.Refusal(desk.Us(), job, 4, {"n1"});
    }
  }();
  desk.Report("n1", held, kNow);
  const v1::JobStatus before = desk.table.Get(job)->status();
  const auto adopted = desk.reconciler->AdoptNode("n1", kNow);
  REQUIRE(adopted.ok());
  CHECK(adopted->ended_size() == 1);
  CHECK(desk.table.Get(job)->status().SerializeAsString() == before.SerializeAsString());
}

TEST_CASE("adoption: who does not refuse, is not there or is not known cannot be adopted") {
  AdoptionDesk desk;
  CHECK(absl::IsNotFound(desk.reconciler->AdoptNode("n1", kNow).status()));
  desk.Dial("n1");
  CHECK(absl::IsFailedPrecondition(desk.reconciler->AdoptNode("n1", kNow).status()));
  desk.Report("n1", desk.Refusal("other", 1, 1, {"n1"}), kNow);
  desk.reconciler->Tick(kNow + kDeskHour);
  const absl::Status lost = desk.reconciler->AdoptNode("n1", kNow + kDeskHour).status();
  CHECK(absl::IsFailedPrecondition(lost));
  CHECK(lost.message().find("does not report") != std::string::npos);
  CHECK(desk.adopted.empty());
}

TEST_CASE("adoption: one that its agent has not heard is said again, until it obeys") {
  AdoptionDesk desk;
  desk.Dial("n1");
  const v1::NodeReport refusal = desk.Refusal("other", 1, 1, {"n1"});
  desk.Report("n1", refusal, kNow);
  REQUIRE(desk.reconciler->AdoptNode("n1", kNow).ok());
  // It was not connected; it is started anew.
  desk.adopted.clear();
  v1::StorePosition other;
  other.set_store("other");
  desk.DialServing("n1", other);
  CHECK(desk.adopted.empty());
  desk.Report("n1", refusal, kNow);
  CHECK(desk.adopted.at("n1") == desk.reconciler->DesiredOf("n1").revision());
  desk.Report("n1", v1::NodeReport(), kNow);
  desk.adopted.clear();
  // What it refuses later is another matter.
  desk.Report("n1", refusal, kNow);
  CHECK(desk.adopted.empty());
}

TEST_CASE("adoption: one that its agent has not heard is said again by the next daemon") {
  AdoptionDesk before;
  before.Dial("n1");
  const uint64_t job = before.Submit(1, kNow);
  const v1::NodeReport refusal = before.Refusal(before.Us(), job, 3, {"n1"});
  before.Report("n1", refusal, kNow);
  REQUIRE(before.reconciler->AdoptNode("n1", kNow, "anna")->kept_size() == 1);
  // It has not been sent; drained meanwhile or not.
  if (GENERATE(false, true)) REQUIRE(before.reconciler->SetUse({"n1", true, "care"}, kNow).ok());
  before.adopted.clear();

  AdoptionDesk desk(before.store);
  CHECK(desk.NodeOf("n1").name() == "n1");
  CHECK(!desk.NodeOf("n1").has_adopted_from());  // shown to nobody
  desk.DialServing("n1", desk.Later());
  CHECK(desk.adopted.empty());
  desk.Report("n1", refusal, kNow);
  REQUIRE(desk.adopted.contains("n1"));
  CHECK(desk.reconciler->DesiredOf("n1").revision() >= desk.adopted.at("n1"));
  CHECK(desk.table.Get(job)->status().attempt() == 3);
  CHECK(!desk.NodeOf("n1").has_adopted_from());
  desk.Report("n1", v1::NodeReport(), kNow);
  desk.adopted.clear();

  AdoptionDesk later(desk.store);  // it has obeyed: nothing of that is left
  later.DialServing("n1", later.Later());
  later.Report("n1", refusal, kNow);
  CHECK(later.adopted.empty());
}

TEST_CASE("adoption: what a node refuses for since is not adopted by what was said before") {
  AdoptionDesk before;
  before.Dial("n1");
  before.Report("n1", before.Refusal("other", 1, 1, {"n1"}), kNow);
  REQUIRE(before.reconciler->AdoptNode("n1", kNow, "anna").ok());
  // A copy of this store, made now, is put back after the agent has obeyed: it has served it since.
  AdoptionDesk desk(before.store);
  v1::NodeReport refusal = desk.Refusal(desk.Us(), 1, 2, {"n1"});
  *refusal.mutable_refuses_for() = desk.Later();
  desk.DialServing("n1", desk.Later());
  desk.Report("n1", refusal, kNow);
  CHECK(desk.adopted.empty());
  CHECK(desk.NodeOf("n1").held_size() == 1);
  CHECK(desk.reconciler->AdoptNode("n1", kNow, "anna").ok());
}

TEST_CASE("adoption: a node that refuses is shown anew when something has changed") {
  AdoptionDesk desk;
  desk.Dial("n1");
  v1::NodeReport refusal = desk.Refusal("other", 1, 1, {"n1"});
  desk.Report("n1", refusal, kNow);
  const auto shown_at = [&] { return desk.NodeOf("n1").last_report_unix_ns(); };
  CHECK(shown_at() == kNow);
  CHECK(desk.NodeOf("n1").held_size() == 1);
  for (int64_t i = 1; i <= 5; ++i) desk.Report("n1", refusal, kNow + i);
  CHECK(shown_at() == kNow);
  refusal.mutable_attempts(0)->set_attempt(2);
  desk.Report("n1", refusal, kNow + 6);
  CHECK(shown_at() == kNow + 6);
  CHECK(desk.NodeOf("n1").held(0).attempt() == 2);
  refusal.mutable_attempts(0)->set_phase(v1::ATTEMPT_ENDED);
  desk.Report("n1", refusal, kNow + 7);
  CHECK(desk.NodeOf("n1").held_size() == 0);
  CHECK(!desk.NodeOf("n1").refuses_for().empty());
  desk.Report("n1", v1::NodeReport(), kNow + 8);
  CHECK(shown_at() == kNow + 8);
  CHECK(desk.NodeOf("n1").refuses_for().empty());
}

TEST_CASE("adoption: where the disk refuses, nobody is adopted") {
  AdoptionDesk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kNow);
  desk.Report("n1", desk.Refusal(desk.Us(), job, 3, {"n1"}), kNow);
  desk.store->full = true;
  CHECK(!desk.reconciler->AdoptNode("n1", kNow).ok());
  CHECK(desk.adopted.empty());
  CHECK(desk.table.Get(job)->status().attempt() == 0);
  desk.store->full = false;
  CHECK(desk.reconciler->AdoptNode("n1", kNow)->kept_size() == 1);
}

TEST_CASE("unknown attempts: a plan waits while one may run, and is looked for again") {
  AdoptionDesk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kNow);
  desk.reconciler->Tick(kNow);
  CHECK(desk.plans == 1);
  const UnknownAttempt live{3, false, false, {"n1", "n7"}};
  REQUIRE(desk.reconciler->UnknownAttemptSeen(job, 1, live, kNow).ok());
  CHECK(desk.StateOf(job) == v1::JOB_PLANNING);
  const std::string reason = desk.table.Get(job)->status().reason();
  CHECK(reason.find("attempt 3 may run on n1, n7") == 0);
  desk.reconciler->Tick(kNow + kDeskSecond);
  CHECK(desk.plans == 1);
  const size_t events = desk.Events().size();
  for (int look = 0; look < 3; ++look) {
    const int64_t later = kNow + (look + 1) * 10 * kDeskSecond;
    desk.Dial("n1", later);
    desk.reconciler->Tick(later);
    CHECK(desk.plans == look + 2);
    REQUIRE(desk.reconciler->UnknownAttemptSeen(job, 1, live, later).ok());
  }
  CHECK(desk.table.Get(job)->status().attempt() == 1);
  // Told once; what came since are words of n1's lease.
  size_t told = 0;
  for (const v1::Event& event : desk.Events()) {
    told += event.has_state_changed() && event.state_changed().reason() == reason ? 1 : 0;
  }
  CHECK(told == 1);
  CHECK(desk.Events().size() <= events + 6);
  // It is over: the number after it.
  REQUIRE(
      desk.reconciler->UnknownAttemptSeen(job, 1, {3, true, false, {"n1"}}, kNow + kDeskHour).ok());
  CHECK(desk.table.Get(job)->status().attempt() == 4);
  CHECK(desk.StateOf(job) == v1::JOB_PLANNING);
}

TEST_CASE("unknown attempts: one whose nodes are off for good is over") {
  AdoptionDesk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kNow);
  desk.reconciler->Tick(kNow);
  const UnknownAttempt live{1, false, false, {"n8", "n9"}};
  REQUIRE(desk.reconciler->UnknownAttemptSeen(job, 1, live, kNow).ok());
  // Nodes of which this store has never heard can be called gone.
  for (const char* node : {"n8", "n9"}) {
    REQUIRE(desk.reconciler->UnknownAttemptSeen(job, 1, live, kNow).ok());
    CHECK(desk.table.Get(job)->status().attempt() == 1);
    REQUIRE(desk.reconciler->SetUse({node, true, "burnt", true}, kNow).ok());
  }
  REQUIRE(desk.reconciler->UnknownAttemptSeen(job, 1, live, kNow).ok());
  CHECK(desk.table.Get(job)->status().attempt() == 2);
}

}  // namespace
}  // namespace trireme::coordinator
