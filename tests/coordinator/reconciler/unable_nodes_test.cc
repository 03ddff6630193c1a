// Nodes whose agents can start nothing: no failure of their jobs, which go on elsewhere.
#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {
namespace {

// Two nodes, of which one may be unable.
struct Unable : Desk {
  explicit Unable(const ReconcilerOptions& options = {}) : Desk(options) {
    Dial("n1");
    Dial("n2");
  }

  std::string NodeOf(uint64_t job) const { return table.Get(job)->allocation(0).node(); }
  v1::JobStatus StatusOf(uint64_t job) const { return table.Get(job)->status(); }
  v1::Node Node(int index) const { return table.cluster().nodes(index); }

  // Up to its plan, whenever that is due.
  void Plan(uint64_t job) {
    now = std::max(now, StatusOf(job).retry_at_unix_ns());
    // All speak on.
    for (const char* node : {"n1", "n2"}) Report(node, {}, now);
    reconciler->Tick(now);
    reconciler->Tick(now + 1);
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
  uint64_t SubmitTo(const std::string& node) {
    Submission submission;
    submission.resources.add_nodes(node);
    return Submit(1, now, submission);
  }

  int64_t now = kDeskBegin;
};

TEST_CASE("unable node: three attempts are tried there, then the job goes elsewhere, unharmed") {
  Unable desk;
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
  CHECK(desk.Node(0).drained());
  CHECK(desk.Node(0).drained_by() == "triremed");
  CHECK(
      desk.Node(0).reason() ==
      "it could start none of 3 attempts in a row, the last of job 1: was not started: no mpirun; "
      "when that is mended: trireme undrain n1");
  desk.now += 4 * kDeskSecond;
  desk.reconciler->Tick(desk.now);
  desk.Plan(job);
  CHECK(desk.NodeOf(job) == "n2");
  desk.Runs(job);
  CHECK(desk.StatusOf(job).unstarted() == 0);
  // Who brings it back begins anew.
  REQUIRE(desk.reconciler->SetUse({"n1", false}, desk.now).ok());
  const uint64_t next = desk.Submit(4, desk.now);
  desk.Plan(next);
  CHECK(desk.NodeOf(next) == "n1");
  desk.Refuses(next);
  CHECK_FALSE(desk.Node(0).drained());
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

TEST_CASE("unable node: a job that no node can start drains one, and ends in time") {
  ReconcilerOptions options;
  options.retry.max_failures = 2;
  Unable desk(options);
  const uint64_t job = desk.Submit(4, desk.now);
  for (int attempt = 1; attempt <= 8; ++attempt) {
    REQUIRE_FALSE(HasEnded(desk.StateOf(job)));
    if (attempt == 4) {
      desk.now = desk.StatusOf(job).retry_at_unix_ns();
      desk.reconciler->Tick(desk.now);
    }
    desk.Plan(job);
    CHECK(desk.NodeOf(job) == (attempt <= 3 ? "n1" : "n2"));
    desk.Refuses(job);
  }
  CHECK(desk.StateOf(job) == v1::JOB_FAILED);
  CHECK(desk.StatusOf(job).exit_code() == 4);
  CHECK(desk.StatusOf(job).reason().find("8 attempts in a row could not be started") == 0);
  CHECK(desk.Node(0).drained());
  CHECK_FALSE(desk.Node(1).drained());
}

TEST_CASE(
    "unable node: it is drained when there is room for it, and one that is drained stays as it "
    "was") {
  Unable desk;
  const uint64_t job = desk.Submit(4, desk.now);
  for (int attempt = 0; attempt < 2; ++attempt) {
    desk.Plan(job);
    desk.Refuses(job);
  }
  desk.Plan(job);
  const bool by_hand = GENERATE(true, false);
  if (by_hand) REQUIRE(desk.reconciler->SetUse({"n1", true, "new disk"}, desk.now).ok());
  v1::NodeReport report = Desk::Word(job, 3, v1::ATTEMPT_ENDED, 4);
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
