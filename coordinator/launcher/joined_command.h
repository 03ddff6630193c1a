// The agent's part of a helper's request to join (join_request.h): a process between the agent and
// what it starts in an attempt's control group. It belongs to init and stays outside of the group,
// so that neither the agent's end nor the group's keeps the helper from hearing of the command's.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace trireme::launcher {

// Forks that process for the helper at the other end of `socket`, which stays the caller's, and
// waits for nobody. `control_group`: its folder, which is there. Forks without exec, as
// StartGuarded (process_guard.h).
absl::Status ServeJoin(int socket, const std::string& control_group);

}  // namespace trireme::launcher
