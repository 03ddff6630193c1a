// Counters are kept; states, progress, nodes and queue are read from the JobTable when asked for.
#include "coordinator/metrics/daemon_metrics.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <map>
#include <vector>

#include "coordinator/job_machine/job_machine.h"
#include "coordinator/job_machine/unable_nodes.h"
#include "runtime/base/exit_code.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kMostJobsTold = 200;
constexpr double kSecond = 1e9;

// "/trireme.v1.Control/Submit" to "Control/Submit"; methods that nobody serves share one name.
std::string MethodName(const std::string& method) {
  for (const char* package : {"/trireme.v1.", "/grpc."}) {
    if (method.starts_with(package)) return method.substr(std::string(package).size());
  }
  return "unknown";
}

struct RunningJob {
  std::string id;
  std::string name;
  v1::Progress progress;
};

// One walk over all jobs.
struct JobCensus {
  std::map<v1::JobState, double> by_state;
  double oldest_wait_seconds = 0;
  std::vector<RunningJob> running;
};

JobCensus Count(const MetricSources& sources) {
  JobCensus census;
  for (int state = v1::JobState_MIN + 1; state <= v1::JobState_MAX; ++state) {
    census.by_state[static_cast<v1::JobState>(state)] = 0;
  }
  // Before the walk: what comes during it may be missed.
  const bool all = sources.table.OlderHaveCome();
  sources.table.ForEach([&](const v1::Job& job, const v1::Progress* progress) {
    const v1::JobStatus& status = job.status();
    census.by_state[status.state()] += 1;
    if (status.state() == v1::JOB_PENDING) {
      const auto waited = static_cast<double>(sources.now_unix_ns - status.changed_unix_ns());
      census.oldest_wait_seconds = std::max(census.oldest_wait_seconds, waited / kSecond);
    }
    const bool runs = status.state() == v1::JOB_RUNNING || status.state() == v1::JOB_PAUSING;
    if (runs && progress != nullptr && census.running.size() < kMostJobsTold) {
      census.running.push_back({std::to_string(job.id()), job.name(), *progress});
    }
  });
  // No number rather than one that is too small.
  if (!all) std::erase_if(census.by_state, [](const auto& one) { return HasEnded(one.first); });
  return census;
}

void WriteJobs(const JobCensus& census, MetricsText& text) {
  text.Begin("trireme_jobs", "gauge", "Jobs by state.");
  for (const auto& [state, count] : census.by_state) {
    text.Sample({{"state", StateWord(state)}}, count);
  }
  text.One("trireme_queue_jobs", "gauge", "Jobs that wait for resources.",
           census.by_state.at(v1::JOB_PENDING));
  text.One("trireme_queue_oldest_wait_seconds", "gauge",
           "How long the job that has waited longest for resources has done so.",
           census.oldest_wait_seconds);
  struct Column {
    const char* name;
    const char* help;
    double (*value)(const v1::Progress&);
  };
  static constexpr Column kColumns[] = {
      {"trireme_job_step", "Steps that a running job has done.",
       [](const v1::Progress& progress) { return static_cast<double>(progress.steps_done()); }},
      {"trireme_job_steps_wanted", "Steps that a running job is to do.",
       [](const v1::Progress& progress) { return static_cast<double>(progress.steps_total()); }},
      {"trireme_job_loss", "Loss of the last reported step.",
       [](const v1::Progress& progress) { return progress.loss(); }},
      {"trireme_job_tokens_per_second", "Tokens trained on a second of the newest step alone.",
       [](const v1::Progress& progress) { return progress.tokens_per_second(); }},
      {"trireme_job_overall_tokens_per_second",
       "Tokens trained on a second of all the time since the attempt's first step.",
       [](const v1::Progress& progress) { return progress.overall_tokens_per_second(); }},
      {"trireme_job_utilisation_ratio", "Model flops over the peak measured by the run.",
       [](const v1::Progress& progress) { return progress.utilisation(); }}};
  for (const Column& column : kColumns) {
    text.Begin(column.name, "gauge", column.help);
    for (const RunningJob& job : census.running) {
      text.Sample({{"job_id", job.id}, {"job_name", job.name}}, column.value(job.progress));
    }
  }
  text.Begin("trireme_job_validation_loss", "gauge",
             "Loss on the validation split, once measured.");
  for (const RunningJob& job : census.running) {
    if (job.progress.validation_step() == 0) continue;
    text.Sample({{"job_id", job.id}, {"job_name", job.name}}, job.progress.validation_loss());
  }
}

const char* NodeWord(const v1::Node& node) {
  if (node.gone()) return "gone";
  return node.state() == v1::NODE_READY ? "ready" : "lost";
}

void WriteNodes(const v1::Cluster& cluster, MetricsText& text) {
  std::map<std::string, double> by_state{{"ready", 0}, {"lost", 0}, {"gone", 0}};
  double drained = 0;
  double unable = 0;
  for (const v1::Node& node : cluster.nodes()) {
    by_state[NodeWord(node)] += 1;
    drained += node.drained() ? 1 : 0;
    // What it was drained for outlives the daemon that has counted.
    const bool by_daemon = node.drained() && node.drained_by() == kDaemonsName;
    unable += by_daemon || !node.unable().empty() ? 1 : 0;
  }
  text.Begin("trireme_nodes", "gauge", "Nodes by state.");
  for (const auto& [state, count] : by_state) text.Sample({{"state", state}}, count);
  text.One("trireme_nodes_drained", "gauge", "Nodes that get no new ranks.", drained);
  text.One("trireme_nodes_unable", "gauge", "Nodes that could start none of their newest attempts.",
           unable);
  struct Column {
    const char* name;
    const char* help;
    double (*value)(const v1::Node&);
  };
  static constexpr Column kColumns[] = {
      {"trireme_node_cpus", "CPUs of a node.",
       [](const v1::Node& node) { return static_cast<double>(node.cpus()); }},
      {"trireme_node_cpus_used", "CPUs of a node that jobs have taken.",
       [](const v1::Node& node) { return static_cast<double>(node.cpus_used()); }},
      {"trireme_node_memory_bytes", "Memory of a node.",
       [](const v1::Node& node) { return static_cast<double>(node.memory_bytes()); }},
      {"trireme_node_memory_used_bytes", "Memory of a node that jobs have taken.",
       [](const v1::Node& node) { return static_cast<double>(node.memory_bytes_used()); }},
      {"trireme_node_gpus", "GPUs of a node.",
       [](const v1::Node& node) { return static_cast<double>(node.gpus()); }},
      {"trireme_node_gpus_used", "GPUs of a node that jobs have taken.",
       [](const v1::Node& node) { return static_cast<double>(node.gpus_used()); }},
      {"trireme_node_last_report_timestamp_seconds", "When the node's agent last reported.",
       [](const v1::Node& node) {
         return static_cast<double>(node.last_report_unix_ns()) / kSecond;
       }}};
  for (const Column& column : kColumns) {
    text.Begin(column.name, "gauge", column.help);
    for (const v1::Node& node : cluster.nodes()) {
      text.Sample({{"node", node.name()}}, column.value(node));
    }
  }
}

}  // namespace

std::string CauseOf(const v1::Failure& failure) {
  const int code = failure.exit_code();
  if (code == base::kNoRoomHere) return "no_room";
  if (failure.rank() >= 0) return code > 128 ? "rank_killed" : "rank_failed";
  switch (code) {
    case base::kBadInput:
      return "bad_input";
    case base::kDoesNotFit:
      return "does_not_fit";
    case 128 + 9:
      return "killed";
    default:
      return "other";
  }
}

DaemonMetrics::DaemonMetrics()
    : transitions_({"trireme_job_transitions_total", "Changes of jobs to a state.", {"to"}}),
      attempts_failed_({"trireme_attempts_failed_total",
                        "Attempts that ended as nobody desired, by cause.",
                        {"cause"}}),
      stalls_({"trireme_rank_stalls_total", "Ranks that were found standing still.", {}}),
      checkpoints_({"trireme_checkpoints_total", "Checkpoints of jobs that were reported.", {}}),
      calls_({"trireme_rpcs_total", "Calls of the API that have ended.", {"method", "code"}}),
      calls_open_({"trireme_rpcs_open", "Calls that are open; Watch: watchers.", {"method"}}),
      call_seconds_({"trireme_rpc_duration_seconds",
                     "From a call to its answer, without streams.",
                     {"method"}}),
      commits_failed_(
          {"trireme_store_commit_failures_total", "Commits that the store refused.", {}}),
      commit_seconds_({"trireme_store_commit_duration_seconds", "Commits to the store.", {}}) {
  // What has not happened is 0, not absent: rates begin there.
  for (const char* cause :
       {"rank_killed", "rank_failed", "bad_input", "does_not_fit", "no_room", "killed", "other"}) {
    attempts_failed_.Add({cause}, 0);
  }
  for (int state = v1::JobState_MIN + 1; state <= v1::JobState_MAX; ++state) {
    transitions_.Add({StateWord(static_cast<v1::JobState>(state))}, 0);
  }
  for (CounterFamily* counter : {&stalls_, &checkpoints_, &commits_failed_}) counter->Add({}, 0);
}

void DaemonMetrics::CallBegins(const std::string& method) { calls_open_.Add({MethodName(method)}); }

void DaemonMetrics::CallEnds(const std::string& method, const std::string& code, bool stream,
                             double seconds) {
  const std::string name = MethodName(method);
  calls_open_.Add({name}, -1);
  calls_.Add({name, code});
  if (!stream) call_seconds_.Observe({name}, seconds);
}

void DaemonMetrics::CountEvent(const v1::Event& event) {
  if (event.has_state_changed()) {
    const v1::JobStateChanged& changed = event.state_changed();
    transitions_.Add({StateWord(changed.to())});
    if (changed.has_failure()) {
      uint32_t& counted = failed_[event.job_id()];
      if (counted != event.attempt()) attempts_failed_.Add({CauseOf(changed.failure())});
      counted = event.attempt();
    }
    if (HasEnded(changed.to())) failed_.erase(event.job_id());
  } else if (event.has_stalled() && !event.stalled().over()) {
    stalls_.Add({});
  } else if (event.has_checkpointed()) {
    checkpoints_.Add({});
  }
}

void DaemonMetrics::CommitEnds(bool ok, double seconds) {
  commit_seconds_.Observe({}, seconds);
  if (!ok) commits_failed_.Add({});
}

std::string DaemonMetrics::Text(const MetricSources& sources) const {
  MetricsText text;
  const v1::Cluster cluster = sources.table.cluster();
  text.Begin("trireme_build_info", "gauge", "1; the version is a label.");
  text.Sample({{"version", cluster.version()}}, 1);
  text.One("trireme_start_timestamp_seconds", "gauge", "When the daemon was started.",
           static_cast<double>(cluster.started_unix_ns()) / kSecond);
  WriteJobs(Count(sources), text);
  WriteNodes(cluster, text);
  transitions_.Write(text);
  attempts_failed_.Write(text);
  stalls_.Write(text);
  checkpoints_.Write(text);
  text.One("trireme_events_total", "counter", "Events of jobs and nodes, since the first start.",
           static_cast<double>(sources.table.last_sequence()));
  calls_.Write(text);
  calls_open_.Write(text, "gauge");
  call_seconds_.Write(text);
  commits_failed_.Write(text);
  commit_seconds_.Write(text);
  text.Begin("trireme_mailbox_tasks", "gauge", "Tasks that wait for a thread of the daemon.");
  text.Sample({{"thread", "reconciler"}}, static_cast<double>(sources.reconciler_tasks));
  text.Sample({{"thread", "planner"}}, static_cast<double>(sources.planner_tasks));
  text.Sample({{"thread", "checker"}}, static_cast<double>(sources.checker_tasks));
  text.Sample({{"thread", "disk"}}, static_cast<double>(sources.disk_tasks));
  text.One("trireme_disk_threads_hanging", "gauge",
           "Threads that wait for a file system beyond their deadline.",
           static_cast<double>(sources.disks_hanging));
  return text.text();
}

}  // namespace trireme::coordinator
