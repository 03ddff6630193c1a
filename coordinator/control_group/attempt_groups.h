// The control groups of one agent's attempts, in the group that was delegated to it. One thread,
// but for what is const.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/control_group/delegation.h"

namespace trireme::control_group {

// What nobody asks for (0, empty) is not bounded.
struct Bounds {
  uint64_t memory_bytes = 0;  // memory.max; one that is hit ends all of the group
  uint64_t tasks = 0;         // pids.max: processes and threads
  std::string cpus;           // cpuset.cpus: "0-3,8"
};

class AttemptGroups {
 public:
  // Moves this process, with its threads, to the agent's leaf, and enables the controllers that
  // there are. Those that cannot be are done without (limits()). `state_folder`, which need not be
  // there yet, makes the names those of this agent. FailedPrecondition: nothing is delegated.
  static absl::StatusOr<std::unique_ptr<AttemptGroups>> Open(const std::string& state_folder,
                                                             const std::string& root = "");

  // Of the group of the attempt with this name, which is the same for every agent of the state
  // folder; whether it is there or not.
  std::string FolderOf(const std::string& attempt) const;
  // Also of one that is there, which is bounded anew where it has no bounds. An error: there is no
  // group, or one whose bounds are not all there.
  absl::Status Make(const std::string& attempt, const Bounds& bounds) const;
  // Of one that is there; what has a bound keeps it. Controllers may have been away since.
  absl::Status Bound(const std::string& attempt, const Bounds& bounds) const;
  // Kills and removes groups of this agent but those of `attempts`.
  void RemoveOthers(const std::set<std::string>& attempts) const;

  // "memory and pids"; empty: groups without limits.
  std::string limits() const;
  const std::string& base() const { return base_; }
  // What could not be had, and why; empty: nothing.
  const std::string& complaint() const { return complaint_; }

 private:
  AttemptGroups(std::string root, std::string base, std::string owner);
  void Enable(const std::string& controller);

  const std::string root_;
  const std::string base_;   // without the root
  const std::string owner_;  // end of its groups' names
  std::set<std::string> enabled_;
  std::string complaint_;
};

}  // namespace trireme::control_group
