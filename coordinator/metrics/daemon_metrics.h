// What the daemon counts, and the page of /metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coordinator/metrics/instruments.h"
#include "coordinator/metrics/metrics_text.h"
#include "coordinator/reconciler/job_table.h"
#include "trireme/v1/event.pb.h"

namespace trireme::coordinator {

// What the page reads at the moment that it is asked for.
struct MetricSources {
  const JobTable& table;
  size_t reconciler_tasks = 0;  // in its mailbox
  size_t planner_tasks = 0;
  size_t checker_tasks = 0;
  size_t disk_tasks = 0;
  size_t disks_hanging = 0;  // threads
  int64_t now_unix_ns = 0;
};

// Threads: any.
class DaemonMetrics {
 public:
  DaemonMetrics();
  // A call of an API's method, "/trireme.v1.Control/Submit", begins and ends. Streams count, but
  // how long they were open says nothing.
  void CallBegins(const std::string& method);
  void CallEnds(const std::string& method, const std::string& code, bool stream, double seconds);
  // What was committed to the store; from one thread. An attempt that is lost and then ends has
  // failed once.
  void CountEvent(const v1::Event& event);
  void CommitEnds(bool ok, double seconds);
  // The whole page.
  std::string Text(const MetricSources& sources) const;

 private:
  CounterFamily transitions_, attempts_failed_, stalls_, checkpoints_;
  CounterFamily calls_, calls_open_;
  HistogramFamily call_seconds_;
  CounterFamily commits_failed_;
  HistogramFamily commit_seconds_;
  std::map<uint64_t, uint32_t> failed_;  // job to its last attempt that was counted
};

// Why an attempt ended as nobody desired, in one of a few words.
std::string CauseOf(const v1::Failure& failure);

}  // namespace trireme::coordinator
