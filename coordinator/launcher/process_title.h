// What ps and pgrep -f show of a process that was forked without exec: else it has the command line
// of its parent, and who ends all `trireme-agent` ends more than that.
#pragma once

namespace trireme::launcher {

// Replaces this process' command line, cut to the room that it had. Nothing changes where /proc
// does not say where that is.
void SetProcessTitle(const char* title);

}  // namespace trireme::launcher
