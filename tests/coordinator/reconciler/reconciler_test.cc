// The reconciler over a simulated cluster: whatever order messages come in, and whenever the daemon
// is killed, no job is lost, none is started twice, and the events tell it whole.
#include "coordinator/reconciler/reconciler.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/coordinator/reconciler/simulated_cluster.h"
#include "tests/coordinator/reconciler/turn_each_second.h"

namespace trireme::coordinator {
namespace {

// One of the things that people do.
void Interfere(SimulatedCluster& cluster) {
  if (cluster.jobs().empty()) return;
  const uint64_t id = cluster.jobs()[cluster.Random(static_cast<uint32_t>(cluster.jobs().size()))];
  switch (cluster.Random(6)) {
    case 0:
      return cluster.Ask(id, CancelAsked{"ann"});
    case 1:
    case 2:
      return cluster.Ask(id, PauseAsked{"ann"});
    case 3:
    case 4:
      return cluster.Ask(id, ResumeAsked{"ann"});
    default:
      return cluster.SetDrained(cluster.Random(2) == 0 ? "n1" : "n2", cluster.Random(2) == 0);
  }
}

}  // namespace

TEST_CASE("no job is lost or started twice whenever the daemon is killed") {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const Folder folder;
    SimulatedCluster cluster(folder.Store(), seed);
    int kills = 0;
    for (int step = 0; step < 600; ++step) {
      if (cluster.jobs().size() < 30 && cluster.Random(10) == 0) {
        cluster.Submit(1 + cluster.Random(8), static_cast<int>(cluster.Random(3)));
      }
      if (cluster.Random(12) == 0) Interfere(cluster);
      if (cluster.Random(20) == 0) {
        cluster.Kill();
        cluster.Open();
        ++kills;
      }
      cluster.Step();
    }
    CHECK(kills > 10);
    cluster.Settle(20000);
    CHECK(cluster.starts() > 20);
  }
}

TEST_CASE("a job that waits says why and where it stands") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  cluster.SetDrained("n1", true);
  cluster.Submit(4, 0);
  cluster.Submit(8, 0);
  cluster.reconciler().Tick(1'000'000'000'001);
  CHECK(cluster.table().Get(cluster.jobs()[0])->status().state() == v1::JOB_PLANNING);
  const auto waits = cluster.table().Get(cluster.jobs()[1]);
  CHECK(waits->queue_position() == 1);
  CHECK(waits->waits_for().find("drained") != std::string::npos);
  const v1::Cluster nodes = cluster.table().cluster();
  REQUIRE(nodes.nodes_size() == 2);
  CHECK(nodes.nodes(1).cpus_used() == 4);
  CHECK(nodes.jobs_pending() == 1);
}

TEST_CASE("who leaves the queue has no place in it and makes room for those behind") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  cluster.SetDrained("n1", true);
  cluster.SetDrained("n2", true);
  for (int i = 0; i < 3; ++i) cluster.Submit(1, 0);
  cluster.reconciler().Tick(1'000'000'000'001);
  const std::vector<uint64_t> jobs = cluster.jobs();
  CHECK(cluster.table().Get(jobs[2])->queue_position() == 3);
  const auto paused = cluster.reconciler().Ask(jobs[0], PauseAsked{"ann"}, 0, 1'000'000'000'002);
  REQUIRE(paused.ok());
  CHECK(paused->queue_position() == 0);
  CHECK(paused->waits_for().empty());
  const auto cancelled =
      cluster.reconciler().Ask(jobs[1], CancelAsked{"ann"}, 0, 1'000'000'000'003);
  REQUIRE(cancelled.ok());
  CHECK(cancelled->queue_position() == 0);
  cluster.reconciler().Tick(1'000'000'000'004);
  CHECK(cluster.table().Get(jobs[2])->queue_position() == 1);
}

TEST_CASE("a node that comes back larger wakes the queue") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  cluster.Submit(100, 0);
  cluster.reconciler().Tick(1'000'000'000'001);
  CHECK(cluster.table().Get(1)->status().state() == v1::JOB_PENDING);
  v1::AgentHello hello;
  hello.set_node("n1");
  hello.set_cpus(1000);
  hello.set_memory_bytes(uint64_t{1} << 50);
  REQUIRE(cluster.reconciler().Hello(hello, 1'000'000'000'002).ok());
  cluster.reconciler().Tick(1'000'000'000'003);
  CHECK(cluster.table().Get(1)->status().state() == v1::JOB_PLANNING);
}

TEST_CASE("a running job whose agent is silent says so") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  cluster.SetDrained("n2", true);
  cluster.Submit(1, 0);
  cluster.reconciler().Tick(1'000'000'000'001);
  CHECK(cluster.table().Get(1)->waits_for().empty());
  const int64_t later = 1'000'000'000'000 + 30'000'000'000;
  REQUIRE(cluster.reconciler().PlanReady(1, 1, absl::OkStatus(), later).ok());
  TurnEachSecond(cluster.reconciler(), 1'000'000'000'001, later);
  const std::string silent = cluster.table().Get(1)->waits_for();
  CHECK(silent.find("waits for a report of the agent of node n1") == 0);
  // A cancel tells why it takes its time; a second one may be quicker, none slower.
  const auto grace_after = [&](double grace) {
    const auto asked = cluster.reconciler().Ask(1, CancelAsked{"ann"}, grace, later);
    REQUIRE(asked.ok());
    CHECK(asked->waits_for() == silent);
    return asked->status().stop_grace_seconds();
  };
  CHECK(grace_after(60) == 60);
  CHECK(grace_after(1) == 1);
  CHECK(grace_after(600) == 1);
  REQUIRE(cluster.reconciler().Report("n1", {}, later + 1).ok());
  cluster.reconciler().Tick(later + 2);
  CHECK(cluster.table().Get(1)->waits_for().empty());
}

TEST_CASE("a node that can start nothing costs no job, and is drained with the reason") {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    INFO("seed " << seed);
    const Folder folder;
    SimulatedCluster cluster(folder.Store(), seed);
    cluster.SetLucky();
    cluster.SetUnable("n1");
    // A node each, a minute apart.
    for (int minute = 0; minute < 4; ++minute) {
      for (int job = 0; job < 3; ++job) cluster.Submit(4, 0);
      for (int step = 0; step < 300; ++step) cluster.Step();
    }
    const v1::Node node = cluster.table().cluster().nodes(0);
    CHECK(node.name() == "n1");
    CHECK(node.drained());
    CHECK(node.drained_by() == "triremed");
    CHECK(node.reason().find("it could start none of ") == 0);
    cluster.Settle(20000);
    for (const uint64_t job : cluster.jobs()) {
      const v1::JobStatus status = cluster.table().Get(job, &cluster.store())->status();
      INFO("job " << job << ": " << status.reason());
      CHECK(status.state() == v1::JOB_COMPLETED);
    }
  }
}

TEST_CASE("nodes of which two can start nothing cost no job, whenever the daemon is killed") {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    INFO("seed " << seed);
    const Folder folder;
    SimulatedCluster cluster(folder.Store(), seed, 3);
    cluster.SetLucky();
    cluster.SetUnable("n1");
    cluster.SetUnable("n2");
    for (int job = 0; job < 4; ++job) cluster.Submit(4, 0);
    for (int daemon = 0; daemon < 5; ++daemon) {
      for (uint32_t steps = cluster.Random(200); steps > 0; --steps) cluster.Step();
      cluster.Kill();
      cluster.Open();
    }
    cluster.Settle(20000);
    for (const uint64_t job : cluster.jobs()) {
      const v1::JobStatus status = cluster.table().Get(job, &cluster.store())->status();
      INFO("job " << job << ": " << status.reason());
      CHECK(status.state() == v1::JOB_COMPLETED);
    }
  }
}

TEST_CASE("a silent agent is lost and its node is not allocated until it speaks") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  const int64_t later = 1'000'000'000'000 + 30'000'000'000;
  cluster.reconciler().Tick(later);
  CHECK(cluster.table().cluster().nodes(0).state() == v1::NODE_LOST);
  cluster.Submit(1, 0);
  cluster.reconciler().Tick(later);
  CHECK(cluster.table().Get(1)->status().state() == v1::JOB_PENDING);
  REQUIRE(cluster.reconciler().Report("n1", {}, later).ok());
  cluster.reconciler().Tick(later);
  CHECK(cluster.table().Get(1)->status().state() == v1::JOB_PLANNING);
  CHECK(cluster.table().Get(1)->allocation(0).node() == "n1");
}

TEST_CASE("an attempt ends on all nodes when one of them is gone for good") {
  const Folder folder;
  const int64_t begin = 1'000'000'000'000;
  const int64_t later = begin + 30'000'000'000;
  // The node of rank 0, which launches, or the other.
  for (const int which : {0, 1}) {
    CAPTURE(which);
    std::filesystem::remove(folder.Store());
    SimulatedCluster cluster(folder.Store(), 1);
    Reconciler& reconciler = cluster.reconciler();
    cluster.Submit(8, 0);
    reconciler.Tick(begin + 1);
    REQUIRE(reconciler.PlanReady(1, 1, absl::OkStatus(), begin + 1).ok());
    const v1::Job job = *cluster.table().Get(1);
    REQUIRE(job.allocation_size() == 2);
    v1::NodeReport report;
    v1::AttemptReport& attempt = *report.add_attempts();
    attempt.set_job_id(1);
    attempt.set_attempt(1);
    attempt.set_phase(v1::ATTEMPT_RUNNING);
    const std::string gone = job.allocation(which).node();
    const std::string other = job.allocation(1 - which).node();
    for (const std::string& node : {gone, other}) {
      REQUIRE(reconciler.Report(node, report, begin + 2).ok());
    }
    REQUIRE(cluster.table().Get(1)->status().state() == v1::JOB_RUNNING);
    const NodeUse use{gone, true, "burnt", true};
    CHECK(absl::IsFailedPrecondition(reconciler.SetUse(use, begin + 3).status()));
    TurnEachSecond(reconciler, begin + 3, later);
    REQUIRE(reconciler.Report(other, report, later).ok());
    CHECK(cluster.table().Get(1)->status().state() == v1::JOB_RUNNING);
    REQUIRE(reconciler.SetUse(use, later).ok());
    reconciler.Tick(later);
    // Nothing is started anew while something may be left of it.
    CHECK(cluster.table().Get(1)->status().state() == v1::JOB_RECOVERING);
    CHECK(cluster.table().Get(1)->status().attempt_live());
    REQUIRE(reconciler.DesiredOf(other).attempts_size() == 1);
    CHECK(reconciler.DesiredOf(other).attempts(0).desired_state() == v1::ATTEMPT_KILL);
    cluster.SwitchOff(gone);
    cluster.Kill();
    cluster.Open();
    attempt.set_phase(v1::ATTEMPT_ENDED);
    Reconciler& again = cluster.reconciler();
    REQUIRE(again.Report(other, report, later).ok());
    const v1::Job after = *cluster.table().Get(1);
    CHECK_FALSE(after.status().attempt_live());
    CHECK(after.status().state() == v1::JOB_RECOVERING);
    CHECK(after.status().failure().headline().find(gone + " is gone: burnt") != std::string::npos);
    const int64_t retried = later + 60'000'000'000;
    REQUIRE(again.Report(other, {}, retried).ok());
    again.Tick(retried);
    again.Tick(retried + 1);
    CHECK(cluster.table().Get(1)->status().state() == v1::JOB_PENDING);
    // Who speaks is not gone, but drained until somebody says otherwise.
    cluster.Hello(gone, later);
    const auto stored = cluster.store().Nodes();
    REQUIRE(stored.ok());
    for (const v1::Node& node : *stored) CHECK_FALSE(node.gone());
  }
}

TEST_CASE("a stopped rank is told once and again when it goes on") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  cluster.Submit(2, 0);
  int64_t now = 1'000'000'000'001;
  Reconciler& reconciler = cluster.reconciler();
  reconciler.Tick(now);
  REQUIRE(reconciler.PlanReady(1, 1, absl::OkStatus(), now).ok());
  const std::string node = cluster.table().Get(1)->allocation(0).node();
  v1::NodeReport report;
  v1::AttemptReport& attempt = *report.add_attempts();
  attempt.set_job_id(1);
  attempt.set_attempt(1);
  attempt.set_phase(v1::ATTEMPT_RUNNING);
  v1::RankReport& rank = *attempt.add_ranks();
  rank.set_rank(1);
  const auto told = [&] {
    int count = 0;
    EventQuery query;
    const auto events = cluster.store().Events(query);
    for (const v1::Event& event : *events) count += event.has_stalled() ? 1 : 0;
    return count;
  };
  for (const v1::RankLife life : {v1::RANK_ALIVE, v1::RANK_STOPPED, v1::RANK_STOPPED}) {
    rank.set_life(life);
    REQUIRE(reconciler.Report(node, report, ++now).ok());
  }
  CHECK(told() == 1);
  rank.set_life(v1::RANK_ALIVE);
  REQUIRE(reconciler.Report(node, report, ++now).ok());
  CHECK(told() == 2);
}

TEST_CASE("events beyond the limit are dropped and the rest has no hole") {
  const Folder folder;
  auto store = JobStore::Open(folder.Store());
  REQUIRE(store.ok());
  Change change;
  for (int i = 0; i < 5000; ++i) change.events.emplace_back().mutable_checkpointed()->set_step(1);
  REQUIRE((*store)->Commit(change).ok());
  ReconcilerOptions options;
  options.most_events = 2500;
  const ReconcilerPorts ports{.make_plan = [](const v1::Job&) {},
                              .desired_changed = [](const std::string&) {}};
  JobTable table;
  auto reconciler = Reconciler::Open(options, ports, **store, table, 1);
  REQUIRE(reconciler.ok());
  // Some at a time, and at once again while there are more.
  CHECK((*reconciler)->Tick(2) < 100'000'000);
  CHECK(*(*store)->FirstSequence() == 1001);
  for (int64_t now = 3; now < 10; ++now) (*reconciler)->Tick(now);
  const uint64_t first = *(*store)->FirstSequence();
  CHECK(first > 2500);
  CHECK(first <= 3501);
  EventQuery all;
  all.limit = 10000;
  CHECK((*store)->Events(all)->size() == 5000 - first + 1);
}

TEST_CASE("an agent's words about attempts that are not current change nothing") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  cluster.Submit(2, 0);
  const int64_t now = 1'000'000'000'001;
  cluster.reconciler().Tick(now);
  const std::string before = cluster.table().Get(1)->SerializeAsString();
  v1::NodeReport report;
  for (const auto& [job, number] : {std::pair{1u, 0u}, {1u, 1u}, {1u, 7u}, {99u, 1u}}) {
    v1::AttemptReport& attempt = *report.add_attempts();
    attempt.set_job_id(job);
    attempt.set_attempt(number);
    attempt.set_phase(v1::ATTEMPT_ENDED);
    attempt.set_exit_code(1);
  }
  // Attempt 1 is being planned: no rank of it can have ended.
  REQUIRE(cluster.reconciler().Report("n1", report, now).ok());
  REQUIRE(cluster.reconciler().Report("stranger", report, now).ok());
  CHECK(cluster.table().Get(1)->SerializeAsString() == before);
  // Now attempt 1 lives, and others' ends are none of its own.
  REQUIRE(cluster.reconciler().PlanReady(1, 1, absl::OkStatus(), now).ok());
  const std::string node = cluster.table().Get(1)->allocation(0).node();
  report.mutable_attempts()->erase(report.attempts().begin() + 1);
  REQUIRE(cluster.reconciler().Report(node, report, now).ok());
  CHECK(cluster.table().Get(1)->status().state() == v1::JOB_LAUNCHING);
  // Nor is the word of a node that has no place in it.
  report.clear_attempts();
  v1::AttemptReport& foreign = *report.add_attempts();
  foreign.set_job_id(1);
  foreign.set_attempt(1);
  foreign.mutable_progress()->set_steps_done(7);
  REQUIRE(cluster.reconciler().Report(node == "n1" ? "n2" : "n1", report, now).ok());
  CHECK_FALSE(cluster.table().ProgressOf(1).has_value());
  REQUIRE(cluster.reconciler().Report(node, report, now).ok());
  CHECK(cluster.table().ProgressOf(1)->steps_done() == 7);
}

TEST_CASE("pages of a list are whole and without repeats") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  for (int i = 0; i < 25; ++i) cluster.Submit(8, 0);
  v1::ListRequest request;
  request.set_page_size(10);
  std::vector<uint64_t> seen;
  while (true) {
    const auto page = cluster.table().List(request, &cluster.store());
    REQUIRE(page.ok());
    for (const v1::Job& job : page->jobs()) seen.push_back(job.id());
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
  }
  REQUIRE(seen.size() == 25);
  for (size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == 25 - i);
  request.set_page_token("x' OR 1=1");
  CHECK(absl::IsInvalidArgument(cluster.table().List(request).status()));
}

}  // namespace trireme::coordinator
