// Where the ranks of a job run: srun and host files spread them over machines, and bind them to
// cores or not. From it come the threads of each rank and whether the plan fits.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/agreement.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::worker {

// A control group with a limit of memory. Its name stays with the rank, which alone can read it: it
// may be of any length, and two containers call different groups alike.
struct GroupLimit {
  uint64_t device = 0;  // with inode: which group, on its machine (base::MemoryLimit)
  uint64_t inode = 0;   // 0: none
  uint64_t limit_bytes = 0;
  uint64_t available_bytes = 0;  // that the limit leaves
};

// Limits that stand above each other, as of a task, its step, the job and the slice: systemd, Slurm
// and Kubernetes have four to six, most of them without a limit.
inline constexpr size_t kGroupLimits = 8;

// One rank's. Sent as bytes: 296 a rank, 0.9 MB for 3,072 ranks, which go up and down a tree.
struct Place {
  uint64_t machine = 0;          // equal for the ranks of one running kernel
  uint64_t core_set = 0;         // equal for ranks that may use the same cores
  uint64_t cores = 1;            // in that set
  uint64_t available_bytes = 0;  // that the system can still give out; 0 if it does not say
  uint64_t held_bytes = 0;       // of what the rank needs, which nobody has to give out any more
  // Of the rank's own control group and those above it, what leaves least first. Of more than fit,
  // the loosest are left out.
  std::array<GroupLimit, kGroupLimits> limits = {};
};

// Memory and the machine's name from files under ROOT, as base::LookAtMemory reads them.
Place ThisPlace(const std::string& root = "");

// The rank's part of its cores, at least 1: all of them if it is bound to cores of its own.
int ThreadsAt(std::span<const Place> places, int rank);
// Of the rank that has fewest: room for more would be set aside on its machine for nothing.
int LeastThreads(std::span<const Place> places);

// What asks for more memory than it may have.
struct Shortage {
  int first_rank = 0;  // of those that share it
  int ranks = 0;
  uint64_t wanted_bytes = 0;
  uint64_t available_bytes = 0;
  bool one_machine = true;  // the whole job runs on one
  GroupLimit group;         // the first rank's view of it; inode 0: the machine itself
};

// The first machine, else the first control group (by its first rank, and of that the tightest),
// whose ranks' arenas are more than it leaves. A group counts for all ranks that are in it or in
// groups below it.
std::optional<Shortage> FindShortage(const v1::Plan& plan, std::span<const Place> places);

// Collective over the ranks of `places`, which are the same on all of them, as is what the plan
// says of arenas. ResourceExhausted on every rank if there is a shortage, in the same words: which
// machine, or which file (read under `root`) of which rank, has how much for which ranks.
absl::Status CheckFits(const v1::Plan& plan, std::span<const Place> places,
                       comm::Agreement& agreement, const std::string& root = "");

}  // namespace trireme::worker
