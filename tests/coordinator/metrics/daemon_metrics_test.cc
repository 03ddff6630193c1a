// The page of /metrics: what is counted, that it stays bounded, and that it is in Prometheus'
// format.
#include "coordinator/metrics/daemon_metrics.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "coordinator/job_store/timed_store.h"

namespace trireme::coordinator {
namespace {

// "name{labels}" to its value.
std::map<std::string, std::string> SamplesOf(const std::string& page) {
  std::map<std::string, std::string> samples;
  size_t begin = 0;
  while (begin < page.size()) {
    const size_t end = page.find('\n', begin);
    REQUIRE(end != std::string::npos);
    const std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("#")) continue;
    const size_t blank = line.rfind(' ');
    REQUIRE(blank != std::string::npos);
    REQUIRE(samples.emplace(line.substr(0, blank), line.substr(blank + 1)).second);
  }
  return samples;
}

v1::Job JobIn(uint64_t id, v1::JobState state, int64_t changed_unix_ns = 0) {
  v1::Job job;
  job.set_id(id);
  job.set_name("job" + std::to_string(id));
  job.mutable_status()->set_state(state);
  job.mutable_status()->set_changed_unix_ns(changed_unix_ns);
  return job;
}

v1::Event FailureOf(uint64_t job, uint32_t attempt, int rank, int code) {
  v1::Event event;
  event.set_job_id(job);
  event.set_attempt(attempt);
  v1::JobStateChanged& changed = *event.mutable_state_changed();
  changed.set_to(v1::JOB_RECOVERING);
  changed.mutable_failure()->set_rank(rank);
  changed.mutable_failure()->set_exit_code(code);
  return event;
}

std::map<std::string, std::string> PageOf(const DaemonMetrics& metrics, const JobTable& table) {
  return SamplesOf(
      metrics.Text({.table = table, .reconciler_tasks = 3, .now_unix_ns = 90'000'000'000}));
}

}  // namespace

TEST_CASE("metrics count jobs that have ended when all are here, and the others at once") {
  JobTable table;
  table.OlderAreAway();
  table.Publish({JobIn(1, v1::JOB_RUNNING), JobIn(2, v1::JOB_COMPLETED)}, {});
  const DaemonMetrics metrics;
  auto samples = PageOf(metrics, table);
  CHECK(samples["trireme_jobs{state=\"running\"}"] == "1");
  CHECK(samples["trireme_jobs{state=\"pending\"}"] == "0");
  for (const char* ended : {"completed", "failed", "cancelled"}) {
    CHECK(samples.count("trireme_jobs{state=\"" + std::string(ended) + "\"}") == 0);
  }
  table.OlderAreHere();
  samples = PageOf(metrics, table);
  CHECK(samples["trireme_jobs{state=\"completed\"}"] == "1");
  CHECK(samples["trireme_jobs{state=\"failed\"}"] == "0");
}

TEST_CASE("metrics tell of jobs by state and of those that run by name") {
  JobTable table;
  table.Publish({JobIn(1, v1::JOB_RUNNING), JobIn(2, v1::JOB_PENDING, 30'000'000'000),
                 JobIn(3, v1::JOB_PENDING, 60'000'000'000), JobIn(4, v1::JOB_COMPLETED)},
                {});
  v1::Progress progress;
  progress.set_steps_done(7);
  progress.set_steps_total(30);
  progress.set_loss(2.5);
  table.PutProgress(1, progress);
  table.PutProgress(4, progress);
  const DaemonMetrics metrics;
  auto samples = PageOf(metrics, table);
  CHECK(samples["trireme_jobs{state=\"pending\"}"] == "2");
  CHECK(samples["trireme_jobs{state=\"running\"}"] == "1");
  CHECK(samples["trireme_jobs{state=\"failed\"}"] == "0");
  CHECK(samples["trireme_queue_jobs"] == "2");
  CHECK(samples["trireme_queue_oldest_wait_seconds"] == "60");
  CHECK(samples["trireme_job_step{job_id=\"1\",job_name=\"job1\"}"] == "7");
  CHECK(samples["trireme_job_loss{job_id=\"1\",job_name=\"job1\"}"] == "2.5");
  CHECK(samples.count("trireme_job_step{job_id=\"4\",job_name=\"job4\"}") == 0);
  CHECK(samples.count("trireme_job_validation_loss{job_id=\"1\",job_name=\"job1\"}") == 0);
  CHECK(samples["trireme_mailbox_tasks{thread=\"reconciler\"}"] == "3");
}

TEST_CASE("metrics tell of nodes and what is taken of them") {
  JobTable table;
  v1::Cluster cluster;
  cluster.set_version("1.2");
  v1::Node& node = *cluster.add_nodes();
  node.set_name("n\"1");
  node.set_state(v1::NODE_READY);
  node.set_cpus(8);
  node.set_cpus_used(3);
  node.set_drained(true);
  node.set_drained_by("triremed");
  v1::Node& lost = *cluster.add_nodes();
  lost.set_state(v1::NODE_LOST);
  lost.set_unable("it could start none of 3 attempts in a row");
  table.PutCluster(cluster);
  const DaemonMetrics metrics;
  auto samples = PageOf(metrics, table);
  CHECK(samples["trireme_build_info{version=\"1.2\"}"] == "1");
  CHECK(samples["trireme_nodes{state=\"ready\"}"] == "1");
  CHECK(samples["trireme_nodes{state=\"lost\"}"] == "1");
  CHECK(samples["trireme_nodes_drained"] == "1");
  CHECK(samples["trireme_nodes_unable"] == "2");
  CHECK(samples["trireme_node_cpus_used{node=\"n\\\"1\"}"] == "3");
}

TEST_CASE("metrics count an attempt that failed once") {
  const JobTable table;
  DaemonMetrics metrics;
  auto before = PageOf(metrics, table);
  CHECK(before["trireme_attempts_failed_total{cause=\"rank_killed\"}"] == "0");
  metrics.CountEvent(FailureOf(1, 1, 3, 137));
  metrics.CountEvent(FailureOf(1, 1, 3, 137));  // it was lost, then it has ended
  metrics.CountEvent(FailureOf(1, 2, 3, 4));
  metrics.CountEvent(FailureOf(2, 1, -1, 3));
  auto samples = PageOf(metrics, table);
  CHECK(samples["trireme_attempts_failed_total{cause=\"rank_killed\"}"] == "1");
  CHECK(samples["trireme_attempts_failed_total{cause=\"rank_failed\"}"] == "1");
  CHECK(samples["trireme_attempts_failed_total{cause=\"does_not_fit\"}"] == "1");
  CHECK(samples["trireme_job_transitions_total{to=\"recovering\"}"] == "4");
}

TEST_CASE("metrics of calls have a bound and histograms add up") {
  const JobTable table;
  DaemonMetrics metrics;
  for (const double seconds : {0.0005, 0.001, 0.002, 20.0}) {
    metrics.CallBegins("/trireme.v1.Control/Get");
    metrics.CallEnds("/trireme.v1.Control/Get", "OK", false, seconds);
  }
  metrics.CallBegins("/trireme.v1.Control/Watch");
  for (int i = 0; i < 1000; ++i) {
    const std::string method = "/x/" + std::to_string(i);
    metrics.CallBegins(method);
    metrics.CallEnds(method, "UNIMPLEMENTED", false, 0);
    metrics.CallEnds("/trireme.v1.Control/Get", "code" + std::to_string(i), true, 0);
  }
  auto samples = PageOf(metrics, table);
  CHECK(samples["trireme_rpc_duration_seconds_bucket{method=\"Control/Get\",le=\"0.001\"}"] == "2");
  CHECK(samples["trireme_rpc_duration_seconds_bucket{method=\"Control/Get\",le=\"10\"}"] == "3");
  CHECK(samples["trireme_rpc_duration_seconds_bucket{method=\"Control/Get\",le=\"+Inf\"}"] == "4");
  CHECK(samples["trireme_rpc_duration_seconds_count{method=\"Control/Get\"}"] == "4");
  CHECK(samples["trireme_rpcs_total{method=\"Control/Get\",code=\"OK\"}"] == "4");
  CHECK(samples["trireme_rpcs_open{method=\"Control/Watch\"}"] == "1");
  CHECK(samples["trireme_rpcs_total{method=\"unknown\",code=\"UNIMPLEMENTED\"}"] == "1000");
  CHECK(samples["trireme_rpcs_total{method=\"other\",code=\"other\"}"] != "");
  CHECK(samples.size() < 400);
}

TEST_CASE("a timed store counts its commits and passes everything on") {
  auto opened = JobStore::Open(":memory:");
  REQUIRE(opened.ok());
  DaemonMetrics metrics;
  const auto store = TimedStore(std::move(*opened), [&](const absl::Status& end, auto took) {
    metrics.CommitEnds(end.ok(), took.count());
  });
  Change change;
  change.jobs.push_back(JobIn(*store->NextJobId(0), v1::JOB_PENDING));
  change.events.emplace_back();
  REQUIRE(store->Commit(change).ok());
  CHECK(change.events[0].sequence() == 1);
  CHECK(store->Jobs()->size() == 1);
  CHECK(*store->LastSequence() == 1);
  Change bad;
  bad.jobs.push_back(JobIn(0, v1::JOB_PENDING));
  CHECK_FALSE(store->Commit(bad).ok());
  const JobTable table;
  auto samples = PageOf(metrics, table);
  CHECK(samples["trireme_store_commit_duration_seconds_count"] == "2");
  CHECK(samples["trireme_store_commit_failures_total"] == "1");
}

TEST_CASE("metric numbers read back as they were") {
  CHECK(MetricNumber(0.1) == "0.1");
  CHECK(MetricNumber(12345678901.0) == "12345678901");
  CHECK(MetricNumber(1.0 / 0.0) == "+Inf");
  CHECK(MetricNumber(-1.0 / 0.0) == "-Inf");
  CHECK(MetricNumber(0.0 / 0.0) == "NaN");
}

}  // namespace trireme::coordinator
