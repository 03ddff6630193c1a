// What a reconciler owes to people, jobs and nodes, one promise after another.
#include <catch2/catch.hpp>

#include "tests/coordinator/reconciler/desk.h"

namespace trireme::coordinator {

TEST_CASE("a repeat of a request id is answered while the queue is full") {
  ReconcilerOptions options;
  options.most_waiting_jobs = 2;
  Desk desk(options);
  Submission submission;
  submission.owner = "ann";
  submission.resources.set_ranks(1);
  const auto submit = [&](const std::string& id) {
    submission.request_id = id;
    return desk.reconciler->Submit(submission, kDeskBegin);
  };
  REQUIRE(submit("a").ok());
  REQUIRE(submit("b").ok());
  CHECK(absl::IsResourceExhausted(submit("c").status()));
  for (const char* id : {"a", "b"}) {
    const auto again = submit(id);
    REQUIRE(again.ok());
    CHECK(again->repeated());
    CHECK(again->job().id() == (*id == 'a' ? 1 : 2));
  }
  // One that has ended makes room.
  REQUIRE(desk.reconciler->Ask(1, CancelAsked{"ann"}, 0, kDeskBegin).ok());
  CHECK(submit("c").ok());
}

TEST_CASE("a report renews the lease of its node") {
  Desk desk;  // ten seconds
  desk.Dial("n1");
  const auto state = [&] { return desk.table.cluster().nodes(0).state(); };
  desk.Report("n1", {}, kDeskBegin + 8 * kDeskSecond);
  const int64_t ends = kDeskBegin + 18 * kDeskSecond;
  desk.reconciler->Tick(ends - 1);
  CHECK(state() == v1::NODE_READY);
  desk.reconciler->Tick(ends);
  desk.reconciler->Tick(ends + kDeskSecond);  // shown by then
  CHECK(state() == v1::NODE_LOST);
  const std::vector<v1::Event> events = desk.Events();
  REQUIRE(!events.empty());
  CHECK(events.back().node_changed().state() == v1::NODE_LOST);
  CHECK(events.back().time_unix_ns() == ends);
}

TEST_CASE("a tick says when the next lease and the next retry are due") {
  ReconcilerOptions options;
  options.lease = std::chrono::milliseconds(300);
  Desk desk(options);
  desk.Dial("n1");
  desk.Dial("n2", kDeskBegin + 100'000'000);
  CHECK(desk.reconciler->Tick(kDeskBegin + 200'000'000) == kDeskBegin + 300'000'000);
  ReconcilerOptions quick;
  quick.retry.first_delay = std::chrono::milliseconds(500);
  Desk other(quick);
  other.Dial("n1");
  other.Launch(other.Submit(1, kDeskBegin), kDeskBegin);
  other.Report("n1", Desk::Word(1, 1, v1::ATTEMPT_ENDED, 4), kDeskBegin);
  CHECK(other.reconciler->Tick(kDeskBegin + 1) == kDeskBegin + 500'000'000);
}

TEST_CASE("a job that was paused waits anew") {
  ReconcilerOptions options;
  options.lease = std::chrono::hours(10);
  Desk desk(options);
  desk.Dial("n1");
  desk.Launch(desk.Submit(2, kDeskBegin), kDeskBegin);
  const uint64_t large = desk.Submit(4, kDeskBegin);
  const int64_t paused = kDeskBegin + 500 * kDeskSecond;
  REQUIRE(desk.reconciler->Ask(large, PauseAsked{"ann"}, 0, paused).ok());
  REQUIRE(desk.reconciler->Ask(large, ResumeAsked{"ann"}, 0, paused).ok());
  // Ten minutes after its submission, but not after it began to wait.
  const uint64_t small = desk.Submit(1, kDeskBegin + 700 * kDeskSecond);
  desk.reconciler->Tick(kDeskBegin + 700 * kDeskSecond);
  CHECK(desk.StateOf(small) == v1::JOB_PLANNING);
  const uint64_t late = desk.Submit(1, kDeskBegin + 1100 * kDeskSecond);
  desk.reconciler->Tick(kDeskBegin + 1100 * kDeskSecond);
  CHECK(desk.StateOf(late) == v1::JOB_PENDING);
}

TEST_CASE("what is submitted is what is told and launched") {
  Desk desk;
  desk.Dial("n1");
  Submission submission;
  submission.job.set_name("tiny");
  submission.job.mutable_resources()->set_priority(7);
  submission.real_paths = true;
  submission.run_folder = "/runs/tiny";
  submission.attempts_before = 3;
  const uint64_t job = desk.Submit(2, kDeskBegin, submission);
  const v1::Job stored = *desk.table.Get(job);
  CHECK(stored.priority() == 7);
  CHECK(stored.run_folder() == "/runs/tiny");
  CHECK(stored.status().attempt() == 3);
  const v1::Event submitted = desk.Events().back();
  CHECK(submitted.submitted().owner() == "ann");
  CHECK(submitted.submitted().name() == "tiny");
  desk.reconciler->Tick(kDeskBegin);
  const v1::Event placed = desk.Events().back();
  REQUIRE(placed.placed().allocation_size() == 1);
  CHECK(placed.placed().allocation(0).node() == "n1");
  REQUIRE(desk.reconciler->PlanReady(job, 4, absl::OkStatus(), kDeskBegin).ok());
  // Without a number of seconds a pause has the daemon's grace.
  REQUIRE(desk.reconciler->Ask(job, PauseAsked{"ann"}, 0, kDeskBegin).ok());
  const v1::DesiredAttempts desired = desk.reconciler->DesiredOf("n1");
  REQUIRE(desired.attempts_size() == 1);
  const v1::DesiredAttempt& attempt = desired.attempts(0);
  CHECK(attempt.attempt() == 4);
  CHECK(attempt.desired_state() == v1::ATTEMPT_STOP);
  CHECK(attempt.grace_seconds() == 60);
  CHECK(attempt.launch().job().name() == "tiny");
  CHECK(attempt.launch().run_folder() == "/runs/tiny");
  CHECK(attempt.launch().threads_per_rank() == 1);
  CHECK(attempt.launch().real_paths());
}

TEST_CASE("an attempt is told what a rank may need of memory, by plan or promise") {
  struct Case {
    uint64_t planned, asked, told;
  };
  // From before plans' needs were stored: who asked for less than he needs would be killed.
  for (const Case& one : {Case{0, 50, 0}, Case{70, 50, 70}, Case{50, 70, 70}}) {
    Desk desk;
    desk.Dial("n1");
    Submission submission;
    submission.resources.set_planned_bytes_per_rank(one.planned);
    submission.resources.set_memory_bytes_per_rank(one.asked);
    desk.Launch(desk.Submit(2, kDeskBegin, submission), kDeskBegin);
    const v1::DesiredAttempts desired = desk.reconciler->DesiredOf("n1");
    REQUIRE(desired.attempts_size() == 1);
    CHECK(desired.attempts(0).launch().memory_bytes_per_rank() == one.told);
  }
}

TEST_CASE("a job's own number of failures is what ends it") {
  Desk desk;
  desk.Dial("n1");
  Submission submission;
  submission.job.mutable_resources()->set_max_failures(1);
  const uint64_t job = desk.Submit(1, kDeskBegin, submission);
  desk.Launch(job, kDeskBegin);
  desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_ENDED, 4), kDeskBegin);
  CHECK(desk.StateOf(job) == v1::JOB_FAILED);
}

TEST_CASE("nodes are told when what they are to have has changed, by a newer revision") {
  Desk desk;
  desk.Dial("n1");
  CHECK(desk.told == std::set<std::string>{"n1"});
  CHECK(desk.table.cluster().nodes_size() == 1);
  desk.told.clear();
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.Launch(job, kDeskBegin);
  CHECK(desk.told == std::set<std::string>{"n1"});
  const uint64_t revision = desk.reconciler->DesiredOf("n1").revision();
  desk.told.clear();
  desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_ENDED), kDeskBegin);
  CHECK(desk.StateOf(job) == v1::JOB_COMPLETED);
  CHECK(desk.told == std::set<std::string>{"n1"});
  CHECK(desk.reconciler->DesiredOf("n1").attempts().empty());
  CHECK(desk.reconciler->DesiredOf("n1").revision() > revision);
}

TEST_CASE("when the launcher's node has ended the others are to kill what is left") {
  Desk desk;
  desk.Dial("n1");
  desk.Dial("n2");
  const uint64_t job = desk.Submit(8, kDeskBegin);
  desk.Launch(job, kDeskBegin);
  const std::string first = desk.table.Get(job)->allocation(0).node();
  const std::string second = desk.table.Get(job)->allocation(1).node();
  const auto report = [&](const std::string& node, v1::AttemptPhase phase, int code,
                          uint64_t checkpoint) {
    v1::NodeReport word = Desk::Word(job, desk.table.Get(job)->status().attempt(), phase, code);
    word.mutable_attempts(0)->set_saved_step(checkpoint);
    desk.Report(node, word, kDeskBegin + 1);
  };
  report(first, v1::ATTEMPT_RUNNING, 0, 3);
  report(second, v1::ATTEMPT_RUNNING, 0, 5);
  // The newest that any node has seen.
  CHECK(desk.table.Get(job)->status().checkpoint_step() == 5);
  CHECK(desk.DesiredOn(second) == v1::ATTEMPT_RUN);
  desk.told.clear();
  report(first, v1::ATTEMPT_ENDED, 4, 3);
  CHECK(desk.told.contains(second));
  CHECK(desk.DesiredOn(first) == v1::ATTEMPT_RUN);
  CHECK(desk.DesiredOn(second) == v1::ATTEMPT_KILL);
  CHECK(desk.StateOf(job) == v1::JOB_RUNNING);
  // How it ended is what the launcher's node says.
  report(second, v1::ATTEMPT_ENDED, 137, 5);
  CHECK(desk.StateOf(job) == v1::JOB_RECOVERING);
  CHECK(desk.table.Get(job)->status().exit_code() == 4);
  // What was said of that attempt is not held against the next.
  const int64_t retry = desk.table.Get(job)->status().retry_at_unix_ns();
  desk.reconciler->Tick(retry);
  REQUIRE(desk.reconciler->PlanReady(job, 2, absl::OkStatus(), retry).ok());
  CHECK(desk.DesiredOn(first) == v1::ATTEMPT_RUN);
  CHECK(desk.DesiredOn(second) == v1::ATTEMPT_RUN);
}

TEST_CASE("a stop is told of each attempt") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(2, kDeskBegin);
  desk.Launch(job, kDeskBegin);
  int64_t now = kDeskBegin;
  const auto stopped = [&](uint32_t attempt) {
    v1::NodeReport word = Desk::Word(job, attempt, v1::ATTEMPT_RUNNING);
    v1::RankReport& rank = *word.mutable_attempts(0)->add_ranks();
    rank.set_rank(1);
    rank.set_life(v1::RANK_STOPPED);
    desk.Report("n1", word, ++now);
    int told = 0;
    for (const v1::Event& event : desk.Events()) told += event.has_stalled() ? 1 : 0;
    return told;
  };
  CHECK(stopped(1) == 1);
  CHECK(stopped(1) == 1);
  desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_ENDED, 4), ++now);
  const int64_t retry = desk.table.Get(job)->status().retry_at_unix_ns();
  desk.reconciler->Tick(retry);
  REQUIRE(desk.reconciler->PlanReady(job, 2, absl::OkStatus(), retry).ok());
  CHECK(stopped(2) == 2);
}

TEST_CASE("readers hear of progress and of what a job's queue waits for") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.Launch(job, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin + 1);
  int news = 0;
  const int subscription = desk.table.Subscribe([&news] { ++news; });
  v1::NodeReport word = Desk::Word(job, 1, v1::ATTEMPT_STARTING);
  word.mutable_attempts(0)->set_waits_for("Resources");
  desk.Report("n1", word, kDeskBegin + 2);
  CHECK(news == 0);
  desk.reconciler->Tick(kDeskBegin + 3);
  CHECK(desk.table.Get(job)->waits_for() == "Resources");
  word.mutable_attempts(0)->mutable_progress()->set_steps_done(4);
  desk.Report("n1", word, kDeskBegin + 4);
  CHECK(news == 1);
  desk.table.Unsubscribe(subscription);
}

TEST_CASE("what a job would wait for is judged by its priority") {
  Desk desk;
  desk.Dial("n1");
  desk.Launch(desk.Submit(2, kDeskBegin), kDeskBegin);
  desk.Submit(4, kDeskBegin);
  v1::ResourceRequest asks;
  asks.set_ranks(3);
  asks.set_cpus_per_rank(1);
  v1::JobSpec spec;
  CHECK(desk.reconciler->WouldWaitFor(asks, spec, kDeskBegin) ==
        "waits for 3 CPUs; 2 of 4 are free; job 2 is before it");
  spec.mutable_resources()->set_priority(1);
  CHECK(desk.reconciler->WouldWaitFor(asks, spec, kDeskBegin) ==
        "waits for 3 CPUs; 2 of 4 are free");
  CHECK_FALSE(desk.table.Get(3).ok());  // nothing is stored of it
}

TEST_CASE("the cluster shows what is used, who runs and why a node is drained") {
  Desk desk;
  desk.Dial("n1");
  Submission submission;
  submission.resources.set_memory_bytes_per_rank(1000);
  submission.resources.set_gpus_per_rank(2);
  const uint64_t job = desk.Submit(2, kDeskBegin, submission);
  desk.Launch(job, kDeskBegin);
  desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_RUNNING), kDeskBegin);
  REQUIRE(desk.reconciler->Ask(job, PauseAsked{"ann"}, 0, kDeskBegin).ok());
  REQUIRE(desk.StateOf(job) == v1::JOB_PAUSING);
  REQUIRE(desk.reconciler->SetUse({"n1", true, "new disk"}, kDeskBegin).ok());
  const v1::Cluster cluster = desk.table.cluster();
  CHECK(cluster.jobs_running() == 1);
  REQUIRE(cluster.nodes_size() == 1);
  CHECK(cluster.nodes(0).cpus_used() == 2);
  CHECK(cluster.nodes(0).memory_bytes_used() == 2000);
  CHECK(cluster.nodes(0).gpus_used() == 4);
  CHECK(cluster.nodes(0).reason() == "new disk");
  REQUIRE(desk.reconciler->SetUse({"n1", false, "new disk"}, kDeskBegin).ok());
  CHECK(desk.table.cluster().nodes(0).reason().empty());
}

TEST_CASE("a retry does not begin on a node that was drained meanwhile") {
  Desk desk;
  desk.Dial("n1");
  const uint64_t job = desk.Submit(1, kDeskBegin);
  desk.Launch(job, kDeskBegin);
  desk.Report("n1", Desk::Word(job, 1, v1::ATTEMPT_ENDED, 4), kDeskBegin);
  // Nobody else gets its allocation until then.
  const uint64_t other = desk.Submit(4, kDeskBegin);
  desk.reconciler->Tick(kDeskBegin + 1);
  CHECK(desk.StateOf(other) == v1::JOB_PENDING);
  REQUIRE(desk.reconciler->SetUse({"n1", true, "new disk"}, kDeskBegin).ok());
  desk.reconciler->Tick(desk.table.Get(job)->status().retry_at_unix_ns());
  CHECK(desk.StateOf(job) == v1::JOB_PENDING);
}

}  // namespace trireme::coordinator
