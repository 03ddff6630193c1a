// The CPUs of this machine, and whether an agent may give attempts CPUs of their own.
#pragma once

#include <string>

#include "coordinator/control_group/cpu_choice.h"
#include "coordinator/control_group/delegation.h"

namespace trireme::control_group {

// Of a file that lists CPUs; none where there is none.
CpuSet CpusIn(const std::string& file);

// That processes in the group with this folder (below ROOT) may use; empty: it does not say.
CpuPlaces UsableCpus(const std::string& folder, const std::string& root = "");

// Why attempts of a process that has this delegation share its CPUs: the controller is missing, or
// the process is bound more tightly than its group, by taskset or CPUAffinity=. Those bounds are
// inherited, and cpuset would lift them before Linux 6.2. Empty: each may have its own.
std::string WhyCpusAreShared(const Delegation& delegation, const std::string& root = "",
                             const std::string& process = "self");

}  // namespace trireme::control_group
