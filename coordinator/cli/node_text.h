// Nodes as people read them.
#pragma once

#include <string>

#include "coordinator/cli/text_table.h"
#include "trireme/v1/control.pb.h"

namespace trireme::cli {

// "ready, drained".
std::string NodeStateText(const v1::Node& node);
// The same, red or yellow where nothing can run there.
Cell NodeStateCell(const v1::Node& node, bool color);
// "1.50 GiB / 64.0 GiB" and "2 / 8", taken and there; "-": it has none.
std::string NodeMemoryText(const v1::Node& node);
std::string NodeGpusText(const v1::Node& node);

// Why it is not used, with who has said so and when: "drained by anna, 2026-11-26 10:02:11: new
// disk"; empty: it is, or nobody has said why.
std::string NodeReasonText(const v1::Node& node);

}  // namespace trireme::cli
