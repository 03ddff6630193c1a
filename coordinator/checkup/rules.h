// From what was measured to what is said of it. Pure; the limits are in rules.cc with their
// reasons.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/checkup/finding.h"
#include "coordinator/control_group/delegation.h"

namespace trireme::checkup {

constexpr uint64_t kUnlimited = UINT64_MAX;

// Of this process, as those that it starts get them.
struct Limits {
  uint64_t open_files = kUnlimited;
  uint64_t most_open_files = kUnlimited;  // to which a user may raise it himself
  uint64_t locked_bytes = kUnlimited;
  uint64_t processes = kUnlimited;
};
std::vector<Finding> JudgeLimits(const Limits& limits);

// Of the file system behind a folder.
struct Space {
  std::string folder;
  absl::Status fault;  // it is not there, or nothing can be written
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};
Finding JudgeSharedMemory(const Space& space);
Finding JudgeDisk(const std::string& name, const Space& space);

// Whether systemd-logind takes a user's files in /dev/shm away when he logs out.
struct Logout {
  bool logind = false;   // it is there
  bool removes = false;  // RemoveIPC, which is so by default; of ordinary users alone
  bool stays = false;    // the user counts as logged in at all times (loginctl enable-linger)
  uint32_t user = 0;
  std::string name;  // of him
};
Finding JudgeLogout(const Logout& logout);

struct Network {
  absl::Status loopback;  // a connection over 127.0.0.1
  int first_port = 0;     // that the kernel gives to those who ask for any
  int last_port = 0;
};
Finding JudgeNetwork(const Network& network);
// Whether a daemon could listen at `address`; InvalidArgument: that is no address.
Finding JudgeListening(const std::string& address, const absl::Status& bound);

struct Clock {
  bool in_step = false;  // kept so by somebody (NTP, PTP)
  // How far the coordinator's is ahead of ours at least; absent: it was not asked.
  std::optional<double> coordinator_ahead_seconds;
};
Finding JudgeClock(const Clock& clock);

// The kernel's setting, "always [madvise] never"; empty: it has none.
Finding JudgeHugePages(const std::string& setting);

// Of the agent that runs here, else of one that would be started from here.
struct ControlGroups {
  bool agent = false;  // one runs
  control_group::Kind kind = control_group::Kind::kNoVersion2;
  std::string folder;               // in which attempts are groups, or which is not delegated
  std::vector<std::string> limits;  // controllers that there are for it: "memory", "pids"
  bool kills = true;                // the kernel has cgroup.kill
  bool version1 = false;            // is mounted
  std::string unwanted;             // the agent's option by which it has none; empty: it wants them
  std::string shared_cpus;          // why attempts have no CPUs of their own; empty: they have
};
Finding JudgeControlGroups(const ControlGroups& groups);

struct Mpi {
  std::string mpirun;     // path; empty: none
  std::string version;    // first line of what it says
  absl::Status launched;  // two ranks under it
};
std::vector<Finding> JudgeMpi(const Mpi& mpi);

struct Slurm {
  std::string sbatch;  // path; empty: none
  std::string version;
  absl::Status controller;           // whether slurmctld answers
  std::vector<std::string> plugins;  // of MPI, as srun names them
  bool set_up = true;                // its commands have found their configuration
};
std::vector<Finding> JudgeSlurm(const Slurm& slurm);

// `answer`: of a call; `version`: its own, to be equal to `ours`.
std::vector<Finding> JudgeCoordinator(const absl::Status& answer, const std::string& address,
                                      const std::string& version, const std::string& ours);

// 1 if anything fails, else 0.
int ExitCodeOf(const std::vector<Finding>& findings);

}  // namespace trireme::checkup
