// How much memory this process may still take: what the machine has, and what the control groups
// (cgroup v1 or v2) that it runs in allow. Containers, Slurm and systemd limit by these groups; who
// looks at /proc/meminfo alone starts what the kernel then kills.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::base {

// The limit of one control group.
struct MemoryLimit {
  std::string file;  // that holds it, as this process sees it
  // Of the group's folder: equal on one machine where the group is the same one, whatever container
  // or namespace names it how. Two containers call their own groups alike.
  uint64_t device = 0;
  uint64_t inode = 0;  // never 0
  uint64_t limit_bytes = 0;
  uint64_t available_bytes = 0;  // below it; pages that only cache files do not count as taken
};

struct MemoryHere {
  uint64_t total_bytes = 0;      // of the machine; 0: it does not say
  uint64_t available_bytes = 0;  // of the machine; 0: it does not say
  // Of the process's own group and of all above it that have one, each once; what leaves least
  // comes first.
  std::vector<MemoryLimit> limits;

  // The smallest of the machine's and the limits'; 0: nobody says anything, or a limit is full.
  uint64_t least_total_bytes() const;
  uint64_t least_available_bytes() const;
};

// Reads ROOT/proc/meminfo, ROOT/proc/self/cgroup, ROOT/proc/self/mountinfo and the groups' files
// under ROOT; the names in the result are without ROOT. What cannot be read limits nothing.
MemoryHere LookAtMemory(const std::string& root = "");

}  // namespace trireme::base
