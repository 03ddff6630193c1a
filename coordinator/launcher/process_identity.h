// Which process it is: a pid alone may be another's by the time somebody uses it.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::launcher {

struct ProcessStat {
  int parent = -1;           // -1: there is no such process
  char state = 0;            // 'Z': it has ended, 'T' or 't': it is stopped
  uint64_t start_ticks = 0;  // since the machine's start
};

// By /proc/PID/stat. Async-signal-safe.
ProcessStat LookAtProcess(int pid);

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
