// What a daemon that comes back finds out of step: nodes that do not, plans not made, a disk that
// is full, a clock that somebody has set.
#include <catch2/catch.hpp>
#include <filesystem>
#include <utility>

#include "coordinator/job_store/forwarding_store.h"
#include "tests/coordinator/reconciler/simulated_cluster.h"
#include "tests/coordinator/reconciler/turn_each_second.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kBegin = 1'000 * kSecondNs;
constexpr int64_t kHourNs = 3600 * kSecondNs;

v1::JobState StateOf(SimulatedCluster& cluster) { return cluster.table().Get(1)->status().state(); }

// Job 1 at work on both nodes.
void RunOnBoth(SimulatedCluster& cluster) {
  cluster.Submit(8, 0);
  cluster.reconciler().Tick(kBegin + 1);
  REQUIRE(cluster.reconciler().PlanReady(1, 1, absl::OkStatus(), kBegin + 1).ok());
  REQUIRE(StateOf(cluster) == v1::JOB_LAUNCHING);
}

void RestartWithoutNodes(SimulatedCluster& cluster) {
  for (const char* node : {"n1", "n2"}) cluster.SwitchOff(node);
  cluster.Kill();
  cluster.Open();
}

// A store whose disk is full when it is told so.
class FullDisk : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  bool full = false;

  absl::Status Commit(Change& change) override {
    return full ? absl::ResourceExhaustedError("no room") : ForwardingStore::Commit(change);
  }
};

// A reconciler over a store, and how often it has asked for a plan.
struct Opened {
  explicit Opened(JobStore& store, const ReconcilerOptions& options = {}) {
    const ReconcilerPorts ports{.make_plan = [this](const v1::Job&) { ++plans; },
                                .desired_changed = [](const std::string&) {}};
    auto opened = Reconciler::Open(options, ports, store, table, kBegin);
    REQUIRE(opened.ok());
    reconciler = *std::move(opened);
  }
  JobTable table;
  int plans = 0;
  std::unique_ptr<Reconciler> reconciler;
};

std::vector<v1::Job> JobsOf(const JobTable& table) {
  std::vector<v1::Job> jobs;
  table.ForEach([&](const v1::Job& job, const v1::Progress*) { jobs.push_back(job); });
  return jobs;
}

v1::AgentHello HelloOf(const std::string& node) {
  v1::AgentHello hello;
  hello.set_node(node);
  hello.set_cpus(4);
  hello.set_memory_bytes(uint64_t{1} << 40);
  return hello;
}

}  // namespace

TEST_CASE("nodes that do not come back with the daemon can be given up") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  RunOnBoth(cluster);
  RestartWithoutNodes(cluster);
  const v1::Cluster known = cluster.table().cluster();
  REQUIRE(known.nodes_size() == 2);
  CHECK(known.nodes(0).state() == v1::NODE_LOST);
  const auto told = [&] {
    int lost = 0;
    const auto events = cluster.store().Events({.limit = 10000});
    for (const v1::Event& event : *events) lost += event.node_changed().state() == v1::NODE_LOST;
    return lost;
  };
  const int before = told();
  cluster.reconciler().Tick(kBegin + 5 * kSecondNs);
  CHECK(told() == before);
  TurnEachSecond(cluster.reconciler(), kBegin + 5 * kSecondNs, kBegin + 31 * kSecondNs);
  CHECK(told() == before + 2);
  for (const char* node : {"n1", "n2"}) {
    REQUIRE(cluster.reconciler().SetUse({node, true, "burnt", true}, kBegin + 2).ok());
    cluster.reconciler().Tick(kBegin + 3);
  }
  CHECK(StateOf(cluster) == v1::JOB_RECOVERING);
  CHECK_FALSE(cluster.table().Get(1)->status().attempt_live());
}

TEST_CASE("an agent that was started anew takes back nothing that it has said") {
  const Folder folder;
  SimulatedCluster cluster(folder.Store(), 1);
  RunOnBoth(cluster);
  v1::NodeReport report;
  v1::AttemptReport& attempt = *report.add_attempts();
  attempt.set_job_id(1);
  attempt.set_attempt(1);
  const auto says = [&](const char* node, v1::AttemptPhase phase) {
    attempt.set_phase(phase);
    REQUIRE(cluster.reconciler().Report(node, report, kBegin + 2).ok());
  };
  says("n2", v1::ATTEMPT_RUNNING);
  says("n2", v1::ATTEMPT_ENDED);
  // What it says before and after its first look.
  says("n2", GENERATE(v1::ATTEMPT_PHASE_UNSPECIFIED, v1::ATTEMPT_STARTING));
  attempt.set_exit_code(4);
  says("n1", v1::ATTEMPT_ENDED);
  CHECK_FALSE(cluster.table().Get(1)->status().attempt_live());
}

TEST_CASE(
    "a retry that is due when the daemon starts keeps its allocation until the agents are there") {
  const Folder folder;
  for (const bool come_back : {true, false}) {
    std::filesystem::remove(folder.Store());
    SimulatedCluster cluster(folder.Store(), 1);
    RunOnBoth(cluster);
    v1::NodeReport report;
    v1::AttemptReport& attempt = *report.add_attempts();
    attempt.set_job_id(1);
    attempt.set_attempt(1);
    attempt.set_phase(v1::ATTEMPT_ENDED);
    attempt.set_exit_code(4);
    attempt.mutable_progress()->set_steps_done(7);
    for (const char* node : {"n1", "n2"}) {
      REQUIRE(cluster.reconciler().Report(node, report, kBegin + 2).ok());
    }
    REQUIRE(StateOf(cluster) == v1::JOB_RECOVERING);
    RestartWithoutNodes(cluster);
    CHECK(cluster.table().Get(1)->progress().steps_done() == 7);
    Reconciler& reconciler = cluster.reconciler();
    const int64_t due = kBegin + 5 * kSecondNs;
    reconciler.Tick(due);
    CHECK(StateOf(cluster) == v1::JOB_RECOVERING);
    if (come_back) {
      for (const char* node : {"n1", "n2"}) {
        REQUIRE(reconciler.Hello(HelloOf(node), due + 1).ok());
      }
      reconciler.Tick(due + 2);
      CHECK(StateOf(cluster) == v1::JOB_PLANNING);
    } else {
      TurnEachSecond(reconciler, due, kBegin + 30 * kSecondNs);
      CHECK(StateOf(cluster) == v1::JOB_PENDING);
    }
  }
}

TEST_CASE("plans that a daemon owes are asked for by the first tick") {
  const Folder folder;
  {
    SimulatedCluster cluster(folder.Store(), 1);
    cluster.Submit(1, 0);
    cluster.reconciler().Tick(kBegin + 1);
    REQUIRE(StateOf(cluster) == v1::JOB_PLANNING);
  }
  auto store = JobStore::Open(folder.Store());
  REQUIRE(store.ok());
  Opened again(**store);
  CHECK(again.plans == 0);
  again.reconciler->Tick(kBegin + 2);
  again.reconciler->Tick(kBegin + 3);
  CHECK(again.plans == 1);
}

TEST_CASE("a hello that a full disk refused is heard once there is room") {
  const Folder folder;
  auto store = JobStore::Open(folder.Store());
  REQUIRE(store.ok());
  FullDisk disk(*std::move(store));
  Opened opened(disk);
  disk.full = true;
  CHECK_FALSE(opened.reconciler->Hello(HelloOf("n1"), kBegin).ok());
  opened.reconciler->Tick(kBegin + 1);
  REQUIRE(opened.reconciler->Report("n1", {}, kBegin + 2).ok());
  CHECK(opened.table.cluster().nodes_size() == 0);
  disk.full = false;
  opened.reconciler->Tick(kBegin + 3);
  REQUIRE(opened.table.cluster().nodes_size() == 1);
  CHECK(opened.table.cluster().nodes(0).state() == v1::NODE_READY);
}

TEST_CASE("of ended jobs those that ended last are kept") {
  const Folder folder;
  auto store = JobStore::Open(folder.Store());
  REQUIRE(store.ok());
  ReconcilerOptions options;
  options.most_ended_jobs = 20;
  Opened opened(**store, options);
  int64_t now = kBegin;
  Submission submission;
  submission.owner = "ann";
  submission.resources.set_ranks(1);
  for (int i = 1; i <= 30; ++i) {
    submission.request_id = std::to_string(i);
    REQUIRE(opened.reconciler->Submit(submission, ++now).ok());
  }
  // The first one ends last.
  for (uint64_t id = 30; id >= 1; --id) {
    REQUIRE(opened.reconciler->Ask(id, CancelAsked{"ann"}, 0, ++now).ok());
  }
  submission.request_id = "waits";
  REQUIRE(opened.reconciler->Submit(submission, ++now).ok());
  opened.reconciler->Tick(++now);
  for (const auto& jobs : {*(*store)->Jobs(), JobsOf(opened.table)}) {
    REQUIRE(jobs.size() == 21);
    CHECK(jobs.front().id() == 1);
    CHECK(jobs[19].id() == 20);
    CHECK(jobs.back().id() == 31);
  }
  CHECK_FALSE(opened.table.Get(25).ok());
  // Forgotten with the job.
  submission.request_id = "25";
  CHECK_FALSE(opened.reconciler->Submit(submission, ++now)->repeated());
  submission.request_id = "20";
  CHECK(opened.reconciler->Submit(submission, ++now)->repeated());
}

TEST_CASE("a clock that is set makes no node lost and delays no lease") {
  const Folder folder;
  auto store = JobStore::Open(folder.Store());
  REQUIRE(store.ok());
  for (const auto& [by, reported] :
       {std::pair{kHourNs, false}, {-kHourNs, false}, {kHourNs, true}, {-kHourNs, true}}) {
    CAPTURE(by, reported);
    Opened opened(**store);
    REQUIRE(opened.reconciler->Hello(HelloOf("n1"), kBegin).ok());
    // Whatever comes first after the clock was set: its news, or a report.
    const int64_t set = kBegin + by + kSecondNs;
    if (reported) REQUIRE(opened.reconciler->Report("n1", {}, set).ok());
    opened.reconciler->ClockWasSet(by, set);
    opened.reconciler->Tick(kBegin + by + 9 * kSecondNs);
    CHECK(opened.table.cluster().nodes(0).state() == v1::NODE_READY);
    opened.reconciler->Tick(kBegin + by + 12 * kSecondNs);
    CHECK(opened.table.cluster().nodes(0).state() == v1::NODE_LOST);
  }
}

TEST_CASE("a retry is not put off by a clock that was set back") {
  v1::JobStatus status;
  status.set_retry_at_unix_ns(kBegin);
  const RetryPolicy policy;
  CHECK(RetryIsDue(status, policy, kBegin));
  CHECK_FALSE(RetryIsDue(status, policy, kBegin - 1));
  CHECK_FALSE(RetryIsDue(status, policy, kBegin - 60 * kSecondNs));
  CHECK(RetryIsDue(status, policy, kBegin - kHourNs));
}

}  // namespace trireme::coordinator
