// The control groups of one agent's attempts, in the group that was delegated to it. One thread,
// but for what is const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/control_group/cpu_list.h"
#include "coordinator/control_group/delegation.h"

namespace trireme::control_group {

// What nobody asks for (0) is not bounded.
struct Bounds {
  uint64_t memory_bytes = 0;  // memory.max
  uint64_t tasks = 0;         // pids.max: processes and threads
  bool ends_as_one = true;    // a kill for memory is of all, also without a limit
};

// Whether attempts are given CPUs of their own, where they can be.
enum class CpuSets { kGiven, kNone };

class AttemptGroups {
 public:
  // Moves this process, with its threads, to the agent's leaf, and enables the controllers for
  // memory, tasks and CPUs. Those that cannot be yet are tried again with each attempt: an agent of
  // before may be about to leave the group. `state_folder`, which need not be
  // there yet, makes the names those of this agent. FailedPrecondition: nothing is delegated.
  static absl::StatusOr<std::unique_ptr<AttemptGroups>> Open(const std::string& state_folder,
                                                             const std::string& root = "",
                                                             CpuSets cpu_sets = CpuSets::kGiven);

  // Of the group of the attempt with this name, which is the same for every agent of the state
  // folder; whether it is there or not.
  std::string FolderOf(const std::string& attempt) const;
  // Also of one that is there, which is bounded anew where it has no bounds. An error: there is no
  // group, or one whose bounds are not all there.
  absl::Status Make(const std::string& attempt, const Bounds& bounds) const;
  // Of one that is there; what has a bound keeps it. Controllers may have been away since.
  absl::Status Bound(const std::string& attempt, const Bounds& bounds) const;
  // Gives the group of the attempt `count` CPUs of its own, those that it had before the controller
  // was away if it can, else what ChooseCpus says; returns them ("0-3,8"). What has CPUs keeps
  // them. Empty: attempts share them (shared_cpus), none are asked for, or there is no group.
  // ResourceExhausted: so many are not left beside those that other groups here have or had, also
  // other agents', and it has all to run on. Waits a second at most for others that choose.
  // Threads: any.
  absl::StatusOr<std::string> GiveCpus(const std::string& attempt, size_t count) const;
  // Kills and removes groups of this agent but those of `attempts`.
  void RemoveOthers(const std::set<std::string>& attempts) const;

  // At the beginning: "memory and pids"; empty: groups without limits.
  const std::string& limits() const { return limits_; }
  const std::string& base() const { return base_; }
  // Why no attempt has CPUs of its own; empty: each may.
  const std::string& shared_cpus() const { return shared_cpus_; }
  // What could not be had then, and why; empty: nothing.
  const std::string& complaint() const { return complaint_; }

 private:
  AttemptGroups(std::string root, const Delegation& delegation, std::string owner);
  // For attempts; also what is enabled already.
  absl::Status Enable(const std::string& controller) const;
  absl::Status BoundMemory(const std::string& folder, const Bounds& bounds) const;
  // By `controller`, what is `none` in `file` of the group.
  absl::Status BoundBy(const std::string& controller, const std::string& file,
                       const std::string& none, const std::string& text) const;
  // That other groups of the base than the one with this folder have, or get again.
  CpuSet CpusOfOthers(const std::string& folder) const;

  const std::string root_;
  const std::string base_;   // without the root
  const std::string owner_;  // end of its groups' names
  const Delegation delegation_;
  std::string limits_;
  std::string shared_cpus_;
  std::string complaint_;
};

}  // namespace trireme::control_group
