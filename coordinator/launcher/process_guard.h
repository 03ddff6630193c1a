// A process between us and what we start, so that nothing outlives us: it adopts every descendant
// (child subreaper), and when its work is over, or we vanish (end of the control pipe), it kills
// what is left, reaps it and removes the temporary folders.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trireme::launcher {

struct GuardedCommand {
  std::vector<std::string> argv;               // argv[0] is a path
  std::vector<std::string> environment;        // the whole of it, "NAME=value"
  std::string output_path;                     // stdout and stderr are appended to it
  std::vector<std::string> temporary_folders;  // removed at the end
};

// What the control pipe carries.
inline constexpr char kGuardStop = 'S';  // USR1 to the command: it forwards it to the ranks
inline constexpr char kGuardKill =
    'K';  // TERM to the command, KILL to everything two seconds later

struct Guard {
  int pid = -1;         // of the guard; its exit code is the command's, 128 + n for a signal
  int control_fd = -1;  // write end, owned by the caller; closing it means kGuardKill
};

// Forks without exec; in the child only async-signal-safe calls and glibc's fork-safe malloc are
// used, so it may be called with other threads about.
absl::StatusOr<Guard> StartGuarded(const GuardedCommand& command);

}  // namespace trireme::launcher
