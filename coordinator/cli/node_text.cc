#include "coordinator/cli/node_text.h"

#include "coordinator/cli/job_text.h"
#include "runtime/base/text.h"
#include "runtime/report/plan_view.h"

namespace trireme::cli {

std::string NodeStateText(const v1::Node& node) {
  std::string text = node.gone() ? "gone" : node.state() == v1::NODE_LOST ? "lost" : "ready";
  if (node.drained()) text += ", drained";
  if (!node.refuses_for().empty()) text += ", refuses";
  return text;
}

Cell NodeStateCell(const v1::Node& node, bool color) {
  const char* paint = node.state() == v1::NODE_LOST                   ? "\x1b[31m"
                      : node.drained() || !node.refuses_for().empty() ? "\x1b[33m"
                                                                      : "";
  const bool painted = color && *paint != '\0';
  return {NodeStateText(node), painted ? paint : "", painted ? "\x1b[0m" : ""};
}

std::string NodeMemoryText(const v1::Node& node) {
  return base::Text(report::ReadableBytes(node.memory_bytes_used()), " / ",
                    report::ReadableBytes(node.memory_bytes()));
}

std::string NodeGpusText(const v1::Node& node) {
  return node.gpus() == 0 ? "-" : base::Text(node.gpus_used(), " / ", node.gpus());
}

std::string NodeReasonText(const v1::Node& node) {
  if (!node.drained() && node.reason().empty()) return node.unable();
  if (!node.drained() || node.drained_by().empty()) return node.reason();
  return base::Text("drained by ", node.drained_by(), ", ", LocalTime(node.drained_unix_ns()),
                    node.reason().empty() ? "" : ": ", node.reason());
}

}  // namespace trireme::cli
