// An agent for the machine of the daemon, so that one machine works out of the box: started where
// none runs, started again if it dies, and left running when the daemon goes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/process/task_thread.h"

namespace trireme::coordinator {

struct LocalAgentOptions {
  std::string program;                 // path of trireme-agent
  std::vector<std::string> arguments;  // of it
  std::string log_file;                // its output is appended
  std::string lock_file;               // locked (base::LockFile) while an agent keeps its folder
};

// A thread of its own. One that an earlier daemon started is seen by its lock. An agent that finds
// another one at work in its state folder ends at once with exit code 0, so that starting one too
// many does no harm.
class LocalAgent {
 public:
  explicit LocalAgent(LocalAgentOptions options);

 private:
  int64_t Look(int64_t now_unix_ns);

  const LocalAgentOptions options_;
  int pid_ = -1;       // of the last one started, until it is reaped
  bool told_ = false;  // that another one is at work
  TaskThread thread_;
};

}  // namespace trireme::coordinator
