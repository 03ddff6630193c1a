// What this node has to offer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::agent {

// Memory, CPUs and GPUs of all nodes of a partition of Slurm, or of its default one (empty).
// Blocks, 30 s at most.
absl::StatusOr<v1::AgentHello> TakeSlurmInventory(const std::string& node,
                                                  const std::string& version,
                                                  const std::string& partition);

// CPUs this process may use, memory that the machine and its control groups allow (their files are
// read under `root`), GPUs that the NVIDIA driver lists, the boot id.
v1::AgentHello TakeInventory(const std::string& node, const std::string& version,
                             const std::string& root = "");

}  // namespace trireme::agent
