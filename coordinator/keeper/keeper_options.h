// Whose attempts a keeper keeps, and where.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/control_group/attempt_groups.h"
#include "coordinator/slurm/batch_script.h"

namespace trireme::keeper {

// LaunchSpec.resume: from the start, whatever checkpoints there are.
inline constexpr char kResumeNone[] = "none";

class AttemptFolder;
class Launch;
struct AttemptRecord;

struct KeeperOptions {
  std::string node;                           // as in v1::NodeAllocation
  std::string state_folder;                   // made if it is not there; of this keeper alone
  std::string worker;                         // path of trireme-worker
  std::vector<std::string> worker_arguments;  // before the keeper's own
  bool bind_to_cores = false;                 // wise only for a node's only job
  // Ranks are a step of the Slurm allocation that this process is in, on whichever of its nodes.
  bool in_allocation = false;
  // The ranks do not outlive this process, however it ends.
  bool ranks_end_with_us = false;
  // In which what mpirun starts here is bounded and ended as one; null: none. Not used where ranks
  // are a step of Slurm's, or end with us.
  std::shared_ptr<const control_group::AttemptGroups> control_groups = nullptr;
  // Path of trireme-agent on every node, by which mpirun's daemons of other nodes come into the
  // group of their node's agent (launcher/join_attempt.h); empty: they do not.
  std::string join_program = "";
  // Attempts are jobs of Slurm: this node stands for a partition of it.
  std::optional<slurm::BatchOptions> slurm = std::nullopt;
  // How long Poll waits for the turns of attempts in their run folders that it has begun, all
  // together. Tests wait for longer: then a Poll does all that follows.
  std::chrono::milliseconds turn_wait{100};
  // A run folder that has not answered for so long is reported as one that hangs; what is to end
  // there is then killed without it.
  std::chrono::milliseconds stalled_after{10000};
  // For the log of whoever holds the keeper: what it ends of itself, and why. From any
  // thread, also one that a disk holds until the keeper is gone.
  std::function<void(const std::string& words)> warn = nullptr;
  // How attempts are begun instead, for tests; what it is given outlives the launch. Its looks and
  // starts run on threads that may outlive the keeper.
  std::function<std::unique_ptr<Launch>(const AttemptRecord&, const AttemptFolder&)> make_launch =
      nullptr;
};

}  // namespace trireme::keeper
