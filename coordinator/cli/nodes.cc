// `trireme nodes`, `drain`, `undrain`.
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
               {Ago(node.last_heard_unix_ns(), now)},
               {Shown(node.reason())}});
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

}  // namespace

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
