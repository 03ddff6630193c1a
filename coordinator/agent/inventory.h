// What this node has to offer.
#pragma once

#include <string>

#include "trireme/v1/agent.pb.h"

namespace trireme::agent {

// CPUs this process may use, memory of the machine, GPUs that the NVIDIA driver lists, the boot id.
v1::AgentHello TakeInventory(const std::string& node, const std::string& version);

}  // namespace trireme::agent
