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

}  // namespace trireme::cli
