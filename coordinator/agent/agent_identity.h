// Which agent this is, among those that may have one name: STATE/agent-id.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trireme::agent {

// Drawn once for a state folder, whoever keeps it, and on the disk when this returns. DataLoss: the
// file is none of ours.
absl::StatusOr<std::string> AgentIdOf(const std::string& state_folder);

}  // namespace trireme::agent
