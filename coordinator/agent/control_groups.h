// Which control groups an agent uses for its attempts (docs/adr/0022).
#pragma once

#include <memory>
#include <string>

#include "coordinator/control_group/attempt_groups.h"

namespace trireme::agent {

// The values of --control-groups.
inline constexpr char kGroupsAuto[] = "auto";
inline constexpr char kGroupsNoCpuset[] = "no-cpuset";
inline constexpr char kGroupsOff[] = "off";

// Null: none. Tells the log which, and why none. Moves this process (AttemptGroups::Open).
std::shared_ptr<const control_group::AttemptGroups> OpenControlGroups(
    const std::string& mode, const std::string& state_folder, const std::string& root = "");

}  // namespace trireme::agent
