// Which process it is: a pid alone may be another's by the time somebody uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace trireme::launcher {

struct ProcessStat {
  int parent = -1;           // -1: there is no such process
  char state = 0;            // 'Z': it has ended, 'T' or 't': it is stopped
  uint64_t start_ticks = 0;  // since the machine's start
};

// By /proc/PID/stat. Async-signal-safe.
ProcessStat LookAtProcess(int pid);

// /proc/PID/`file`, as far as it is no longer than `most_bytes`; nullopt, with errno, if it cannot
// be read.
std::optional<std::string> ProcessFile(int pid, const char* file, size_t most_bytes);

struct ProcessIdentity {
  int pid = -1;
  uint64_t start_ticks = 0;
  std::string boot_id;
};

ProcessIdentity IdentityOf(int pid);
// False once it has ended, reaped or not, or the machine was started anew.
bool IsAlive(const ProcessIdentity& process);
// Sends `signal` to this process and to no other that got its pid; false if it has ended.
bool SendSignal(const ProcessIdentity& process, int signal);

}  // namespace trireme::launcher
