// Whether the control group (v2) that this process runs in is ours to make others in.
#pragma once

#include <string>
#include <vector>

namespace trireme::control_group {

// Where an agent goes to within its group, which may hold no process once it has controllers for
// others.
inline constexpr char kAgentLeaf[] = "trireme-agent";

enum class Kind {
  kNoVersion2,    // none is mounted, or this process is in none that is seen
  kNotDelegated,  // it is somebody else's, as the system manager's
  kDelegated,
};

struct Delegation {
  Kind kind = Kind::kNoVersion2;
  std::string folder;  // of the group; where it is kDelegated, that in which others may be made
  std::vector<std::string> controllers;  // that its children may have: "memory", "pids"
  std::vector<std::string> enabled;      // that they have
  bool kills = true;  // the kernel has cgroup.kill (Linux 5.14), or that is not seen from here

  bool Has(const std::string& controller) const;
  bool HasEnabled(const std::string& controller) const;
};

// Reads ROOT/proc/self and the group's files below ROOT; writes nothing. `folder` is without ROOT.
// Of another `process`, by its pid: an agent in its leaf has what it needed.
Delegation FindDelegation(const std::string& root = "", const std::string& process = "self");

}  // namespace trireme::control_group
