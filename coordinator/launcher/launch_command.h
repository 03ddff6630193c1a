// The command line of a job's ranks: mpirun or srun and its options, or the worker itself where one
// rank needs neither; its environment, and where it leaves its files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/launcher/process_guard.h"

namespace trireme::launcher {

struct Host {
  std::string name;
  int ranks = 0;
};

struct LaunchOptions {
  std::string worker;                  // path of the program of a rank
  std::vector<std::string> arguments;  // of the worker
  int ranks = 1;                       // of all hosts
  // In rank order; reached by the remote shell of mpirun. One or none: this machine alone.
  std::vector<Host> hosts;
  std::string log_folder;                // exists: rank-N.log of each rank, mpirun.log
  std::vector<std::string> environment;  // "NAME=value", beside (or instead of) our own's
  int threads = 0;                       // OMP_NUM_THREADS of a rank; 0: cores / ranks, at least 1
  bool bind_to_cores = false;            // wise only if this is the machine's only job
  // Path of trireme-agent on every host, which puts mpirun's daemons of the others into the
  // attempt's control group there (join_attempt.h); empty: none does.
  std::string join_program = "";
  // A step of the Slurm allocation that we are in, over its nodes; `hosts` has none then.
  bool in_allocation = false;
  std::string step_name;  // by which it is found, should srun be killed
};

// Where mpirun (short paths: sockets) and the ranks leave their files while they run.
struct TemporaryFolders {
  std::string session;
  std::string shared_memory;
};

// Cores this process may run on.
int AvailableCores();
// Whether this process is in an allocation of Slurm's.
bool InAllocation();
// The command line (argv[0] the path `mpirun`, or the worker itself as one MPI singleton if that is
// empty).
std::vector<std::string> LaunchCommand(const LaunchOptions& options, const std::string& mpirun,
                                       const TemporaryFolders& folders);
// The same as a step of Slurm, by the path of `srun`.
std::vector<std::string> StepCommand(const LaunchOptions& options, const std::string& srun);
// What a guard needs for it; the guard removes `folders` at the end. NotFound: there is no worker,
// or no mpirun or srun, which names the Debian package (one rank runs without mpirun).
absl::StatusOr<GuardedCommand> CommandFor(const LaunchOptions& options,
                                          const TemporaryFolders& folders);

}  // namespace trireme::launcher
