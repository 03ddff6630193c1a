// What only the programs of others can say. Each is bounded by a deadline of its own.
#pragma once

#include <chrono>
#include <string>

#include "coordinator/checkup/rules.h"

namespace trireme::checkup {

// Two ranks of `worker hello` under mpirun, as jobs are started; nothing is left of them.
Mpi AskMpi(const std::string& worker, std::chrono::milliseconds deadline);

Slurm AskSlurm();

// Names of the plugins in what `srun --mpi=list` says.
std::vector<std::string> PluginsOf(const std::string& list);

}  // namespace trireme::checkup
