// The files of one control group, by the path of its folder. Where there is no group, nothing is in
// it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace trireme::control_group {

// Moves this process there. 0, or errno. Async-signal-safe.
int Join(const char* procs_file);
inline std::string ProcsFile(const std::string& folder) { return folder + "/cgroup.procs"; }

// Writes to a file of a group that is there.
absl::Status WriteTo(const std::string& file, const std::string& text);

// KILL to all that is in it, at once. What forks meanwhile gets it too (Linux 5.14).
void KillAll(const std::string& folder);
// Whether a process that has not ended is in it or below it.
bool IsPopulated(const std::string& folder);
// Kills what is in it and removes it, within `limit_ms`. True: it is not there any more.
bool RemoveGroup(const std::string& folder, int64_t limit_ms);

// What is to be kept of a group in which the kernel has killed for want of memory: memory.events,
// and memory.max as a line of that name where it has one. Empty: it has killed none.
std::string MemoryKillsIn(const std::string& folder);
// Of a memory.events, or of what was kept.
struct MemoryEvents {
  uint64_t limit_hits = 0;   // "oom": its own limit was full, and nothing could be taken back
  uint64_t kills = 0;        // "oom_kill": processes of it that the kernel has killed for memory
  uint64_t limit_bytes = 0;  // "memory.max", of what was kept; 0: none
};
MemoryEvents ReadMemoryEvents(const std::string& file);
// Of a group that is there, with its limit; all 0: nothing is known.
MemoryEvents MemoryEventsIn(const std::string& folder);

}  // namespace trireme::control_group
