// Starts the ranks of a job through mpirun and watches over them: a clean stop
// (USR1: ranks save and exit 75), a kill, and no process, temporary folder or shared-memory file
// left behind, whatever dies first.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/launcher/process_guard.h"

namespace trireme::launcher {

struct Host {
  std::string name;
  int ranks = 0;
};

struct LaunchOptions {
  std::string worker;                  // path of the program of a rank
  std::vector<std::string> arguments;  // of the worker
  int ranks = 1;                       // of all hosts
  // In rank order; reached by the remote shell of mpirun. One or none: this machine alone.
  std::vector<Host> hosts;
  std::string run_folder;                 // exists; logs/ and recorder/ are made in it
  std::vector<std::string> environment;   // "NAME=value", beside (or instead of) our own's
  int threads = 0;                        // OMP_NUM_THREADS of a rank; 0: cores / ranks, at least 1
  bool bind_to_cores = false;             // wise only if this is the machine's only job
  std::chrono::milliseconds deadline{0};  // then as RequestStop; 0: none
  std::chrono::milliseconds grace{60000};  // from RequestStop to Kill
};

// Where mpirun (short paths: sockets) and the ranks leave their files while they run.
struct TemporaryFolders {
  std::string session;
  std::string shared_memory;
};

struct LaunchResult {
  int exit_code = 0;  // mpirun's: that of the first rank that failed, 128 + n for a signal
  bool stop_requested = false;
  bool killed = false;
};

// Cores this process may run on.
int AvailableCores();
// The command line (argv[0] the path `mpirun`, or the worker itself as one MPI singleton if that is
// empty).
std::vector<std::string> LaunchCommand(const LaunchOptions& options, const std::string& mpirun,
                                       const TemporaryFolders& folders);
// What a guard needs for it. The run folder has logs/; the guard removes `folders` at the end.
// NotFound: there is no worker, or no mpirun, which names the Debian package (one rank runs
// without).
absl::StatusOr<GuardedCommand> CommandFor(const LaunchOptions& options,
                                          const TemporaryFolders& folders);

// One thread. The destructor kills what still runs and waits for its end (2 s at most, then KILL).
class MpirunLauncher {
 public:
  // Output: RUN/logs/rank-N.log of each rank, RUN/logs/mpirun.log of mpirun. The logs
  // of an earlier attempt are kept as logs.1, logs.2 ..., its recordings are removed. NotFound as
  // of CommandFor.
  static absl::StatusOr<std::unique_ptr<MpirunLauncher>> Start(const LaunchOptions& options);
  ~MpirunLauncher();
  MpirunLauncher(const MpirunLauncher&) = delete;
  MpirunLauncher& operator=(const MpirunLauncher&) = delete;

  // Never blocks; empty while the job runs. Call it a few times a second: it keeps the deadlines.
  std::optional<LaunchResult> Poll();
  LaunchResult Wait();
  // The first call asks all ranks to save and exit; the second kills them.
  void RequestStop();
  // Instead of the options'; before or after RequestStop.
  void set_grace(std::chrono::milliseconds grace) { options_.grace = grace; }
  void Kill();
  int guard_pid() const { return guard_.pid; }

 private:
  using Clock = std::chrono::steady_clock;
  MpirunLauncher(const LaunchOptions& options, std::vector<std::string> folders, Guard guard);
  void Send(char request);

  LaunchOptions options_;
  std::vector<std::string> temporary_folders_;
  Guard guard_;
  Clock::time_point started_;
  std::optional<Clock::time_point> stop_at_;
  bool killed_ = false;
  std::optional<LaunchResult> result_;
};

}  // namespace trireme::launcher
