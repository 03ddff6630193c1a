// Nodes whose agents can start nothing: no failure of their jobs, which go on elsewhere.
#include <tuple>

#include "runtime/base/exit_code.h"
#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {
namespace {

// Some nodes, of which some may be unable.
struct Unable : Desk {
  explicit Unable(const ReconcilerOptions& options = {}, int count = 2,
                  std::shared_ptr<DeskStore> kept = nullptr)
      : Desk(options, std::move(kept)) {
    for (int node = 1; node <= count; ++node) nodes.push_back("n" + std::to_string(node));
    for (const std::string& node : nodes) Dial(node);
  }

  std::string NodeOf(uint64_t job) const { return table.Get(job)->allocation(0).node(); }
  v1::JobStatus StatusOf(uint64_t job) const { return table.Get(job)->status(); }
  v1::Node Node(int index) const { return table.cluster().nodes(index); }

  // Up to when its next attempt is due, or on for a moment.
  void Turn(uint64_t job) {
    now = std::max(now + 1, StatusOf(job).retry_at_unix_ns());
    // All speak on.
    for (const std::string& node : nodes) Report(node, {}, now);
    reconciler->Tick(now);
    reconciler->Tick(now + 1);
  }
  // Up to its plan, whenever that is due.
  void Plan(uint64_t job) {
    Turn(job);
    REQUIRE(StateOf(job) == v1::JOB_PLANNING);
    REQUIRE(reconciler->PlanReady(job, StatusOf(job).attempt(), absl::OkStatus(), now).ok());
  }
  // The end of an attempt that its node could not start; of an agent of before, which does not say
  // so.
  void Refuses(uint64_t job, bool says_so = true) {
    v1::NodeReport report = Word(job, StatusOf(job).attempt(), v1::ATTEMPT_ENDED, 4);
    report.mutable_attempts(0)->set_launcher(true);
    report.mutable_attempts(0)->set_never_started(says_so);
    report.mutable_attempts(0)->mutable_failure()->set_headline("was not started: no mpirun");
    const std::string node = NodeOf(job);
    Report(node, report, now);
    Report(node, report, now);  // each second
    reconciler->Tick(now);
  }
  void Runs(uint64_t job) {
    Report(NodeOf(job), Word(job, StatusOf(job).attempt(), v1::ATTEMPT_RUNNING), now);
  }
  // `rank`: what has become of the one that its node has said anything of.
  void Ends(uint64_t job, int exit_code, v1::RankLife rank = v1::RANK_STARTING) {
    v1::NodeReport report = RankWord(job, StatusOf(job).attempt(), 0, rank);
    report.mutable_attempts(0)->set_phase(v1::ATTEMPT_ENDED);
    report.mutable_attempts(0)->set_exit_code(exit_code);
    Report(NodeOf(job), report, now);
  }
  uint64_t SubmitTo(const std::string& node, uint32_t ranks = 1) {
    Submission submission;
    submission.resources.add_nodes(node);
    return Submit(ranks, now, submission);
  }
  // One that takes all of it, from here on.
  uint64_t Occupy(const std::string& node) {
    const uint64_t job = SubmitTo(node, 4);
    Plan(job);
    Runs(job);
    return job;
  }

  std::vector<std::string> nodes;
  int64_t now = kDeskBegin;
};

TEST_CASE(
    "unable node: a job goes on to one that has not failed to start it, while there is room") {
  Unable desk({}, 3);
  const uint64_t job = desk.Submit(4, desk.now);
  for (const char* node : {"n1", "n2"}) {
    desk.Plan(job);
    CHECK(desk.NodeOf(job) == node);
    desk.Refuses(job);
    const v1::JobStatus status = desk.StatusOf(job);
    CHECK(status.state() == v1::JOB_RECOVERING);
    CHECK(status.failures() == 0);
    // One that is tried for the first time is not waited for.
    CHECK(status.retry_at_unix_ns() == desk.now + kDeskSecond);
  }
  CHECK(desk.StatusOf(job).reason() ==
        "was not started: no mpirun, which is no failure of the job; the next attempt follows in "
        "1 s, not on n1, n2 where other nodes have room");
  desk.Plan(job);
  CHECK(desk.NodeOf(job) == "n3");
  desk.Runs(job);
  CHECK(desk.StatusOf(job).unstarted() == 0);
  CHECK(desk.StatusOf(job).unable_nodes().empty());
  CHECK_FALSE(desk.Node(0).drained());
  CHECK_FALSE(desk.Node(1).drained());
}

TEST_CASE("unable node: which could not start a job is known to the next daemon") {
  auto desk = std::make_unique<Unable>(ReconcilerOptions(), 3);
  const bool waits = GENERATE(true, false);
  const uint64_t other = waits ? desk->Occupy("n3") : 0;
  const uint64_t job = desk->Submit(4, desk->now);
  for (int attempt = 0; attempt < (waits ? 4 : 2); ++attempt) {
    desk->Plan(job);
    desk->Refuses(job);
  }
  if (waits) desk->Turn(job);
  REQUIRE(desk->StateOf(job) == (waits ? v1::JOB_PENDING : v1::JOB_RECOVERING));
  const std::shared_ptr<DeskStore> store = desk->store;
  const int64_t now = desk->now;
  desk.reset();
  Unable next({}, 3, store);
  next.now = now;
  next.Turn(job);
  if (waits) {
    CHECK(next.StateOf(job) == v1::JOB_PENDING);
    next.Ends(other, 0);
    next.Turn(job);
  }
  CHECK(next.StateOf(job) == v1::JOB_PLANNING);
  CHECK(next.NodeOf(job) == "n3");
}

TEST_CASE(
    "unable node: it is tried again where no other has room, and drained for three in a row that "
    "are a minute apart") {
  Unable desk;
  const uint64_t other = desk.Occupy("n2");
  const uint64_t job = desk.Submit(4, desk.now);
  for (const int64_t delay : {1, 2, 4}) {
    CHECK_FALSE(desk.Node(0).drained());
    desk.Plan(job);
    CHECK(desk.NodeOf(job) == "n1");
    desk.Refuses(job);
    const v1::JobStatus status = desk.StatusOf(job);
    CHECK(status.state() == v1::JOB_RECOVERING);
    CHECK(status.failures() == 0);
    CHECK(status.retry_at_unix_ns() == desk.now + delay * kDeskSecond);
    CHECK(status.reason().find("no mpirun, which is no failure of the job") != std::string::npos);
  }
  desk.Turn(job);
  CHECK(desk.StateOf(job) == v1::JOB_PENDING);
  uint64_t next = 0;
  for (int minute = 0; minute < 2; ++minute) {
    CHECK_FALSE(desk.Node(0).drained());
    CHECK(desk.Node(0).unable().empty());
    desk.now += 60 * kDeskSecond;
    next = desk.SubmitTo("n1");
    desk.Plan(next);
    desk.Refuses(next);
  }
  CHECK(desk.Node(0).drained());
  CHECK(desk.Node(0).drained_by() == "triremed");
  const std::string why =
      "it could start none of 5 attempts in a row, the last of job 4: was not started: no mpirun";
  CHECK(desk.Node(0).reason() == why + "; when that is mended: trireme undrain n1");
  CHECK(desk.Node(0).unable() == why);
  desk.Ends(other, 0);
  desk.Plan(job);
  CHECK(desk.NodeOf(job) == "n2");
  desk.Runs(job);
  CHECK(desk.StatusOf(job).unstarted() == 0);
  // Who brings it back begins anew.
  REQUIRE(desk.reconciler->SetUse({"n1", false}, desk.now).ok());
  desk.now += 60 * kDeskSecond;
  desk.Plan(next);
  CHECK(desk.NodeOf(next) == "n1");
  desk.Refuses(next);
  CHECK_FALSE(desk.Node(0).drained());
}

TEST_CASE("unable node: after three tries a job waits for one that has not failed to start it") {
  Unable desk({}, 3);
  const uint64_t other = desk.Occupy("n3");
  const uint64_t job = desk.Submit(4, desk.now);
  for (const char* node : {"n1", "n2", "n2", "n2"}) {
    desk.Plan(job);
    CHECK(desk.NodeOf(job) == node);
    desk.Refuses(job);
  }
  CHECK_FALSE(desk.Node(0).drained());
  desk.Turn(job);
  CHECK(desk.StateOf(job) == v1::JOB_PENDING);
  CHECK(desk.StatusOf(job).reason() == "waits for another node: n1, n2 could not start it");
  CHECK(desk.table.Get(job)->waits_for() ==
        "waits for 4 CPUs; 0 of 4 are free; it keeps off nodes n1, n2, which could not start it");
  SECTION("which has room when another ends") { desk.Ends(other, 0); }
  SECTION("or for one of them that somebody has mended") {
    REQUIRE(desk.reconciler->SetUse({"n1", false}, desk.now).ok());
    CHECK(desk.store->FindJob(job)->value().status().unable_nodes_size() == 1);
  }
  const std::string goes_on = desk.StateOf(other) == v1::JOB_COMPLETED ? "n3" : "n1";
  // Another that asks for the same waits for none of that.
  const uint64_t equal = desk.Submit(4, desk.now);
  desk.Plan(job);
  CHECK(desk.NodeOf(job) == goes_on);
  CHECK(desk.NodeOf(equal) == (goes_on == "n1" ? "n2" : "n1"));
}

// A moment in which /tmp was full: two jobs gave it up, one of them for n2 alone.
TEST_CASE("unable node: one that has started another job since is let back by all") {
  Unable desk;
  const uint64_t other = desk.Occupy("n2");
  const uint64_t job = desk.Submit(3, desk.now);
  const auto starts_another = [&] {
    const uint64_t another = desk.SubmitTo("n1");
    desk.Plan(another);
    REQUIRE(desk.NodeOf(another) == "n1");
    desk.Runs(another);
    return another;
  };
  for (int attempt = 0; attempt < 3; ++attempt) {
    desk.Plan(job);
    REQUIRE(desk.NodeOf(job) == "n1");
    desk.Refuses(job);
    if (attempt == 0) desk.Ends(starts_another(), 0);
  }
  desk.Turn(job);
  REQUIRE(desk.StateOf(job) == v1::JOB_PENDING);
  REQUIRE(desk.table.Get(job)->waits_for().find("keeps off node n1") != std::string::npos);
  REQUIRE_FALSE(desk.Node(0).drained());
  const uint64_t another = starts_another();
  CHECK(desk.store->FindJob(job)->value().status().unable_nodes().empty());
  desk.Plan(job);
  CHECK(desk.NodeOf(job) == "n1");
  CHECK(desk.StateOf(other) == v1::JOB_RUNNING);
  CHECK(desk.StateOf(another) == v1::JOB_RUNNING);
}

TEST_CASE("unable node: tries within a minute of one that counts are of one trouble") {
  Unable desk;
  const uint64_t job = desk.SubmitTo("n1");
  // After 0, 1, 3, 7, 15, 31, 63 and 123 seconds.
  for (int attempt = 1; attempt <= 8; ++attempt) {
    CAPTURE(attempt);
    CHECK_FALSE(desk.Node(0).drained());
    desk.Plan(job);
    desk.Refuses(job);
  }
  CHECK(desk.Node(0).drained());
  CHECK(desk.StatusOf(job).failures() == 0);
}

TEST_CASE("unable node: the last that can be used is not drained, and its jobs try until it can") {
  ReconcilerOptions options;
  options.retry.max_failures = 1;
  Unable desk(options, 1);
  const bool other = GENERATE(false, true);
  if (other) {
    desk.Dial("n2");
    REQUIRE(desk.reconciler->SetUse({"n2", true, "new disk"}, desk.now).ok());
  }
  const uint64_t job = desk.Submit(1, desk.now);
  for (int attempt = 1; attempt <= 30; ++attempt) {
    CAPTURE(attempt);
    desk.Plan(job);
    desk.Refuses(job);
    REQUIRE(desk.StateOf(job) == v1::JOB_RECOVERING);
  }
  CHECK_FALSE(desk.Node(0).drained());
  CHECK(desk.Node(0).unable().find("it could start none of ") == 0);
  CHECK(desk.StatusOf(job).reason().find(
            "no mpirun, which is no failure of the job; node n1 has started nothing of late, and "
            "no other can be used, so it is tried again in ") != std::string::npos);
  SECTION("it is mended") {
    desk.Plan(job);
    desk.Runs(job);
    desk.now += 1;
    desk.reconciler->Tick(desk.now + kDeskSecond);
    CHECK(desk.StatusOf(job).unstarted() == 0);
    CHECK(desk.StateOf(job) == v1::JOB_RUNNING);
  }
  SECTION("another one comes, so that it is no longer the last") {
    if (other) REQUIRE(desk.reconciler->SetUse({"n2", false}, desk.now).ok());
    if (!other) desk.Dial("n2", desk.now);
    desk.nodes.emplace_back("n2");
    desk.Plan(job);
    CHECK(desk.Node(0).drained());
    CHECK(desk.Node(0).drained_by() == "triremed");
    CHECK(desk.NodeOf(job) == "n2");
  }
}

TEST_CASE("unable node: of two that can start nothing one is drained, and the other tried on") {
  Unable desk;
  const uint64_t first = desk.SubmitTo("n1");
  const uint64_t second = desk.SubmitTo("n2");
  for (int attempt = 1; attempt <= 30; ++attempt) {
    for (const uint64_t job : {first, second}) {
      if (job == first && desk.Node(0).drained()) continue;
      desk.Plan(job);
      desk.Refuses(job);
    }
  }
  CHECK(desk.Node(0).drained());
  CHECK_FALSE(desk.Node(1).drained());
  desk.Turn(first);
  CHECK(desk.StateOf(first) == v1::JOB_PENDING);
  CHECK(desk.StateOf(second) == v1::JOB_RECOVERING);
}

TEST_CASE("unable node: a job of several nodes leaves the one that was to launch it") {
  Unable desk({}, 3);
  const uint64_t job = desk.Submit(8, desk.now);
  desk.Plan(job);
  REQUIRE(desk.NodeOf(job) == "n1");
  desk.Refuses(job);
  desk.Report("n2", Desk::Word(job, 1, v1::ATTEMPT_ENDED), desk.now);
  desk.Plan(job);
  REQUIRE(desk.table.Get(job)->allocation_size() == 2);
  CHECK(desk.table.Get(job)->allocation(0).node() == "n2");
  CHECK(desk.table.Get(job)->allocation(1).node() == "n3");
}

TEST_CASE("unable node: whose memory has no room for a rank's snapshots is left by all ranks") {
  Unable desk({}, 4);
  const uint64_t job = desk.Submit(8, desk.now);
  for (const auto& [rank, first, second] : {std::tuple(5, "n1", "n3"), std::tuple(1, "n3", "n4")}) {
    desk.Plan(job);
    v1::NodeReport report =
        Desk::Word(job, desk.StatusOf(job).attempt(), v1::ATTEMPT_ENDED, base::kNoRoomHere);
    report.mutable_attempts(0)->set_launcher(true);
    report.mutable_attempts(0)->mutable_failure()->set_rank(rank);
    report.mutable_attempts(0)->mutable_failure()->set_exit_code(base::kNoRoomHere);
    const v1::Job before = *desk.table.Get(job);
    desk.Report(before.allocation(0).node(), report, desk.now);
    desk.Report(before.allocation(1).node(),
                Desk::Word(job, desk.StatusOf(job).attempt(), v1::ATTEMPT_ENDED), desk.now);
    CHECK(desk.StatusOf(job).state() == v1::JOB_RECOVERING);
    CHECK(desk.StatusOf(job).failures() == 0);
    const std::string full = before.allocation(rank / 4).node();
    CHECK(*desk.StatusOf(job).unable_nodes().rbegin() == full);
    desk.Turn(job);
    REQUIRE(desk.table.Get(job)->allocation_size() == 2);
    CHECK(desk.table.Get(job)->allocation(0).node() == first);
    CHECK(desk.table.Get(job)->allocation(1).node() == second);
  }
  // It can do all else.
  for (int node = 0; node < 4; ++node) CHECK_FALSE(desk.Node(node).drained());
}

TEST_CASE(
    "unable node: one that starts another in between is none, one that runs on from before is, or "
    "that refuses one") {
  Unable desk;
  const uint64_t before = desk.SubmitTo("n1");
  desk.Plan(before);
  desk.Runs(before);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const uint64_t job = desk.SubmitTo("n1");
    desk.Plan(job);
    desk.Refuses(job);
    desk.Runs(before);
    desk.now += 60 * kDeskSecond;
  }
  const uint64_t between = desk.SubmitTo("n1");
  desk.Plan(between);
  bool starts = false;
  SECTION("it starts it") {
    desk.Runs(between);
    starts = true;
  }
  SECTION("before all its ranks are at work one dies") {
    desk.Ends(between, 2, v1::RANK_DEAD);
    starts = true;
  }
  // Whoever is stopped or killed before it begins says nothing.
  SECTION("it is killed before it begins") { desk.Ends(between, 137); }
  SECTION("it is stopped before it begins") { desk.Ends(between, 75); }
  // Nor does who is refused for something that is not the node's doing, as its claim.
  SECTION("it is refused") { desk.Refuses(between, /*says_so=*/false); }
  SECTION("mpirun ends before a rank begins") { desk.Ends(between, 1); }
  desk.Ends(before, 0);
  const uint64_t last = desk.SubmitTo("n1");
  desk.Plan(last);
  desk.Refuses(last);
  CHECK(desk.Node(0).drained() == !starts);
}

TEST_CASE(
    "unable node: of an agent that does not say so, each is a failure, and no node is drained") {
  Unable desk;
  const uint64_t job = desk.Submit(4, desk.now);
  for (uint32_t failures = 1; failures < 5; ++failures) {
    desk.Plan(job);
    desk.Refuses(job, /*says_so=*/false);
    CHECK(desk.StatusOf(job).failures() == failures);
  }
  desk.Plan(job);
  desk.Refuses(job, /*says_so=*/false);
  CHECK(desk.StateOf(job) == v1::JOB_FAILED);
  CHECK_FALSE(desk.Node(0).drained());
}

TEST_CASE(
    "unable node: a job that no node can start goes from one to the other, and ends in time") {
  ReconcilerOptions options;
  options.retry.max_failures = 2;
  Unable desk(options);
  const uint64_t job = desk.Submit(4, desk.now);
  // The first one on another node does not count.
  for (int attempt = 1; attempt <= 9; ++attempt) {
    REQUIRE_FALSE(HasEnded(desk.StateOf(job)));
    desk.Plan(job);
    CHECK(desk.NodeOf(job) == (attempt % 2 == 1 ? "n1" : "n2"));
    desk.Refuses(job);
  }
  CHECK(desk.StateOf(job) == v1::JOB_FAILED);
  CHECK(desk.StatusOf(job).exit_code() == 4);
  CHECK(desk.StatusOf(job).reason() ==
        "9 attempts in a row could not be started by their nodes (n2, n1): was not started: no "
        "mpirun");
  CHECK_FALSE(desk.Node(0).drained());
  CHECK_FALSE(desk.Node(1).drained());
}

TEST_CASE("unable node: a job that no node can start drains one at most") {
  Unable desk({}, 3);
  const uint64_t job = desk.SubmitTo("n1");
  const uint64_t second = desk.Submit(1, desk.now, [] {
    Submission submission;
    submission.resources.add_nodes("n1");
    submission.resources.add_nodes("n2");
    return submission;
  }());
  // Once at n1, and then at n2 for ever: of that nothing is heard.
  desk.Plan(second);
  REQUIRE(desk.NodeOf(second) == "n1");
  desk.Refuses(second);
  for (int attempt = 0; attempt < 8; ++attempt) {
    desk.Plan(job);
    desk.Refuses(job);
  }
  for (int attempt = 0; attempt < 12; ++attempt) {
    desk.Plan(second);
    desk.Refuses(second);
  }
  CHECK(desk.NodeOf(second) == "n2");
  CHECK(desk.Node(0).drained());
  CHECK_FALSE(desk.Node(1).drained());
}

TEST_CASE(
    "unable node: it is drained when there is room for it, and one that is drained stays as it "
    "was") {
  Unable desk;
  const uint64_t job = desk.SubmitTo("n1", 4);
  for (int attempt = 0; attempt < 7; ++attempt) {
    desk.Plan(job);
    desk.Refuses(job);
  }
  desk.Plan(job);
  const bool by_hand = GENERATE(true, false);
  if (by_hand) REQUIRE(desk.reconciler->SetUse({"n1", true, "new disk"}, desk.now).ok());
  v1::NodeReport report = Desk::Word(job, 8, v1::ATTEMPT_ENDED, 4);
  report.mutable_attempts(0)->set_never_started(true);
  desk.Report("n1", report, desk.now);
  desk.store->full = true;
  desk.reconciler->Tick(desk.now);
  CHECK(desk.Node(0).drained() == by_hand);
  desk.store->full = false;
  desk.reconciler->Tick(desk.now);
  CHECK(desk.Node(0).drained());
  CHECK((desk.Node(0).reason() == "new disk") == by_hand);
}

}  // namespace
}  // namespace trireme::coordinator
