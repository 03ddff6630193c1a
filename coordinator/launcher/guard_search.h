// Guards by /proc alone, for whoever cannot read the folder that they have claimed: a guard names
// itself and its folder where ps shows a command (process_guard.h).
#pragma once

#include <string>
#include <vector>

#include "coordinator/launcher/process_identity.h"

namespace trireme::launcher {

inline constexpr char kGuardName[] = "trireme-guard";  // as /proc/PID/comm has it

// What a guard of this folder shows as its command.
std::string GuardTitle(const std::string& folder);

struct FoundGuard {
  ProcessIdentity process;
  // False: the title had no room for the whole of the path, and the kernel has the folder by
  // another name, or has no more of it: it may be another folder's.
  bool certain = true;
};

// Guards of `folder` that live, also those that have not claimed it yet. Touches no folder but
// /proc; reads all of that.
std::vector<FoundGuard> GuardsOf(const std::string& folder);

}  // namespace trireme::launcher
