// A process between us and what we start, a child of init. It adopts every descendant (child
// subreaper), and when its work is over it kills what is left, reaps it, removes the temporary
// folders and leaves its verdict. It is spoken to, and found again, by the files of a folder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace trireme::launcher {

struct GuardedCommand {
  // argv[0] is a path. It begins with USR1 ignored, for it may not listen at once.
  std::vector<std::string> argv;
  std::vector<std::string> environment;        // the whole of it, "NAME=value"
  std::string output_path;                     // stdout and stderr are appended to it
  std::vector<std::string> temporary_folders;  // removed at the end
  // Each rank makes one of these files as soon as USR1 does not end it any more: until all are
  // there, for ten seconds at most, a stop waits.
  std::vector<std::string> signs_of_ranks;
  // As by kGuardKill, when the process that starts it has ended. False: it outlives that.
  bool ends_with_starter = false;
  // Folder of the control group that the command runs in, and the guard does not. At the end what
  // is in it is killed and it is removed. Empty: none; where it cannot be entered, as without.
  std::string control_group = "";
  // Asked directly before the fork, when the disk has answered what comes before it. Empty: no.
  std::function<bool()> called_off = {};
  // Asked by the guard when it has claimed the folder, which a disk may have held up for long: true
  // where another has taken the place of the command. It may read files, and takes no lock. Empty:
  // no.
  std::function<bool()> replaced = {};
};

// What the FIFO carries.
// USR1 to the command, twice a second until it ends: mpirun forwards it to the ranks.
inline constexpr char kGuardStop = 'S';
inline constexpr char kGuardKill =
    'K';  // TERM to the command, KILL to everything two seconds later

// In `folder`, which exists:
//   control     FIFO that the guard reads; it holds both ends open
//   guard.json  {"pid", "start_ticks" (field 22 of /proc/PID/stat), "boot_id"}, written before it
//               starts the command. Whoever finds the file there starts nothing: of many calls for
//               a folder, also of several processes at once, one command starts. An empty one,
//               made by O_EXCL, seals the folder: no command starts any more.
//   memory.events  that of the command's control group, if it counts kills for want of memory, and
//                  its limit
//   exit        {"exit_code"}, its last act: nothing is left of the command then. The command's
//               own, 128 + n for a signal.
// A guard that finds itself replaced, or kGuardKill in the FIFO, before it has started the command
// starts none: `exit` says 137.
// All are whole or absent. Blocks until a guard has claimed the folder, usually a few ms, 10 s at
// most: DeadlineExceeded, and it may still start. Cancelled: it was called off,
// and no guard was made. Needs a file system with hard links. Forks
// without exec; in the child only async-signal-safe calls and glibc's fork-safe malloc are used, so
// it may be called with other threads about.
absl::Status StartGuarded(const GuardedCommand& command, const std::string& folder);

}  // namespace trireme::launcher
