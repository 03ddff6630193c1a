// `trireme nodes`, `nodes adopt`, `drain`, `undrain`.
#include <cstdio>

#include "coordinator/cli/control.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/node_text.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/text_table.h"
#include "runtime/base/text.h"
#include "runtime/report/progress.h"

namespace trireme::cli {
namespace {

using base::Text;

constexpr size_t kStoreShown = 8;  // of its UUID

// What it holds for the other store, and the way out.
std::string RefusalText(const v1::Node& node) {
  std::string jobs;
  for (const v1::HeldAttempt& held : node.held()) {
    jobs += Text(jobs.empty() ? "" : ", ", held.job_id(), ".", held.attempt());
  }
  return Text("runs ", jobs.empty() ? "ranks" : jobs, " of another store (",
              node.refuses_for().substr(0, kStoreShown),
              "), or of a later state: trireme nodes adopt ", node.name());
}

void PrintTable(const v1::Cluster& cluster) {
  const bool color = report::StyleOf(stdout).color;
  const int64_t now = NowUnixNs();
  TextTable table({"NODE", "STATE", "CPUS", "MEMORY", "GPUS", "HEARD", "REASON"}, {2, 3, 4, 5});
  table.Shrink({0});
  for (const v1::Node& node : cluster.nodes()) {
    table.Add({{node.name()},
               NodeStateCell(node, color),
               {Text(node.cpus_used(), " / ", node.cpus())},
               {NodeMemoryText(node)},
               {NodeGpusText(node)},
               {Ago(node.last_report_unix_ns(), now)},
               {Shown(node.refuses_for().empty() ? NodeReasonText(node) : RefusalText(node))}});
  }
  std::fputs(table.Text(TerminalWidth()).c_str(), stdout);
}

void PrintCluster(const v1::Cluster& cluster) {
  if (cluster.nodes().empty()) {
    std::printf("no nodes; one joins when trireme-agent is started on it\n");
  } else {
    PrintTable(cluster);
  }
  std::string text = Text(base::Counted(cluster.jobs_running(), "job"), " running, ",
                          cluster.jobs_pending(), " pending; triremed ", cluster.version());
  if (cluster.started_unix_ns() != 0) {
    text += ", up " + Ago(cluster.started_unix_ns(), NowUnixNs());
  }
  std::printf("%s\n", Shown(text).c_str());
}

template <typename Request>
int Ask(const ControlOptions& control, const Request& request) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto node = (*client)->Call(request);
  if (!node.ok()) return PrintCallError(node.status());
  if (control.json) {
    PrintJsonLine(*node);
    return kOk;
  }
  std::string text = Text("node ", node->name(), " is ", NodeStateText(*node));
  if (!node->reason().empty()) text += Text(" (", node->reason(), ")");
  std::printf("%s\n", Shown(text).c_str());
  return kOk;
}

// "attempt 2 of job 7".
std::string HeldText(const v1::HeldAttempt& held) {
  return Text("attempt ", held.attempt(), " of job ", held.job_id());
}

}  // namespace

int RunAdopt(const ControlOptions& control, const std::string& node) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  v1::AdoptNodeRequest request;
  request.set_node(node);
  const auto adopted = (*client)->Call(request);
  if (!adopted.ok()) return PrintCallError(adopted.status());
  if (control.json) {
    PrintJsonLine(*adopted);
    return kOk;
  }
  for (const v1::HeldAttempt& held : adopted->kept()) {
    std::printf("%s goes on\n", HeldText(held).c_str());
  }
  for (const v1::HeldAttempt& held : adopted->ended()) {
    std::printf("%s is ended: this store knows no such attempt\n", HeldText(held).c_str());
  }
  std::printf("node %s serves this daemon\n", Shown(adopted->node().name()).c_str());
  return kOk;
}

int RunNodes(const ControlOptions& control) {
  const auto client = Connect(control);
  if (!client.ok()) return PrintCallError(client.status());
  const auto cluster = (*client)->Call(v1::GetClusterRequest());
  if (!cluster.ok()) return PrintCallError(cluster.status());
  control.json ? PrintJsonLine(*cluster) : PrintCluster(*cluster);
  return kOk;
}

int RunDrain(const ControlOptions& control, const v1::DrainRequest& request) {
  return Ask(control, request);
}

int RunUndrain(const ControlOptions& control, const std::string& node) {
  v1::UndrainRequest request;
  request.set_node(node);
  return Ask(control, request);
}

}  // namespace trireme::cli
