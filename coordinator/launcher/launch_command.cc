// Options of Open MPI 4.1, and why each is there.
#include "coordinator/launcher/launch_command.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "coordinator/launcher/join_attempt.h"
#include "coordinator/process/command.h"
#include "runtime/base/check.h"

namespace trireme::launcher {
namespace {

// Each rank opens its own log, so that its last words need no living mpirun, and asks for a death
// signal with mpirun's end, should even the guard be killed (setpriv is of util-linux, essential in
// Debian). A request to stop that comes before the worker listens does not end it: it is made again
// (coordinator/launcher/process_guard.h).
constexpr const char* kRankShell =
    "trap '' USR1; log=$1; shift; exec "
    ">>\"$log/rank-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}.log\" 2>&1; "
    "if command -v setpriv >/dev/null; then exec setpriv --pdeathsig KILL \"$@\"; fi; exec \"$@\"";

// On another host nobody else has made the folder.
constexpr const char* kMakeFolder =
    "mkdir -p -m 700 \"${OMPI_MCA_btl_vader_backing_directory:-/dev/shm}\"; ";

constexpr char kLaunchAgentVariable[] = "OMPI_MCA_orte_launch_agent";

// vader copies large messages by process_vm_readv, which some containers forbid; then it must not
// try.
bool MayReadOtherProcesses() {
  char from = 1, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

// Of this machine: mpirun runs on the first host.
int RanksHere(const LaunchOptions& options) {
  return options.hosts.empty() ? options.ranks : options.hosts[0].ranks;
}

int ThreadsOf(const LaunchOptions& options) {
  if (options.in_allocation && options.threads <= 0) return 1;  // nodes may differ
  return options.threads > 0 ? options.threads
                             : std::max(1, AvailableCores() / std::max(1, RanksHere(options)));
}

std::string_view NameOf(std::string_view entry) { return entry.substr(0, entry.find('=')); }

// What an mpirun above us has set would mislead ours. Without one, OMPI_MCA_ is what the machine's
// people have set.
bool SetByMpirun(std::string_view entry) {
  static const bool below = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  if (entry.starts_with("OMPI_MCA_")) return below;
  return entry.starts_with("OMPI_") || entry.starts_with("PMIX_") || entry.starts_with("ORTE_");
}

// Ours first: of two entries of a name the first counts.
std::vector<std::string> EnvironmentOf(const LaunchOptions& options,
                                       const TemporaryFolders& folders) {
  std::vector<std::string> environment = options.environment;
  environment.push_back(fmt::format("OMP_NUM_THREADS={}", ThreadsOf(options)));
  if (options.in_allocation) {
    // As in a batch file of ours (coordinator/slurm/batch_script.cc); files of other nodes are
    // Slurm's to remove.
    environment.emplace_back("SLURM_PMIX_FENCE=ring");
  } else {
    // For a rank without mpirun, which reads no command line of Open MPI.
    environment.emplace_back("OMPI_MCA_ess_singleton_isolated=1");
    environment.push_back("OMPI_MCA_orte_tmpdir_base=" + folders.session);
    environment.push_back("OMPI_MCA_btl_vader_backing_directory=" + folders.shared_memory);
  }
  const size_t ours = environment.size();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool given =
        std::any_of(environment.begin(), environment.begin() + static_cast<long>(ours),
                    [&](const std::string& mine) { return NameOf(mine) == NameOf(*entry); });
    if (!given && !SetByMpirun(*entry)) environment.emplace_back(*entry);
  }
  return environment;
}

// Whether mpirun starts its daemons by the command that it has, in a shell that knows backquotes:
// ssh's own, which the agent's user has on all nodes. In an allocation of a batch system mpirun
// asks that; and who has set another daemon for this machine keeps it.
bool MpirunAsksAShell() {
  for (const char* other : {kLaunchAgentVariable, "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}) {
    if (std::getenv(other) != nullptr) return false;
  }
  const char* shell = std::getenv("SHELL");
  if (shell == nullptr) return true;
  const std::string_view path(shell);
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name == "sh" || name == "bash" || name == "dash" || name == "ksh" || name == "zsh";
}

// Ranks fill the hosts in order; a cut link ends the launch within seconds instead of never.
std::vector<std::string> HostArguments(const LaunchOptions& options,
                                       const TemporaryFolders& folders) {
  std::string list;
  for (const Host& host : options.hosts) {
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host.name, host.ranks);
  }
  std::vector<std::string> argv{"--host", list};
  for (const char* setting : {"time 2", "intvl 1", "probes 3"}) {
    const std::string_view text(setting);
    const size_t blank = text.find(' ');
    argv.insert(argv.end(), {"--mca", fmt::format("oob_tcp_keepalive_{}", text.substr(0, blank)),
                             std::string(text.substr(blank + 1))});
  }
  argv.insert(argv.end(), {"-x", "OMP_NUM_THREADS"});
  for (const std::string& entry : options.environment) {
    argv.insert(argv.end(), {"-x", std::string(NameOf(entry))});
  }
  if (options.join_program.empty() || !MpirunAsksAShell()) return argv;
  const std::string agent = JoiningLaunchAgent(options.join_program, folders.session);
  if (!agent.empty()) argv.insert(argv.end(), {"--mca", "orte_launch_agent", agent});
  return argv;
}

}  // namespace

bool InAllocation() { return std::getenv("SLURM_JOB_ID") != nullptr; }

int AvailableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

std::vector<std::string> LaunchCommand(const LaunchOptions& options, const std::string& mpirun,
                                       const TemporaryFolders& folders) {
  std::vector<std::string> argv;
  const auto add = [&](std::initializer_list<std::string> more) {
    argv.insert(argv.end(), more.begin(), more.end());
  };
  const bool several = options.hosts.size() > 1;
  if (!mpirun.empty()) {
    add({mpirun, "-n", std::to_string(options.ranks), "--oversubscribe"});
    if (geteuid() == 0) add({"--allow-run-as-root"});
    add({"--mca", "odls_base_sigkill_timeout", "0"});
    add({"--mca", "orte_tmpdir_base", folders.session});
    add({"--mca", "btl_vader_backing_directory", folders.shared_memory});
    if (!MayReadOtherProcesses()) add({"--mca", "btl_vader_single_copy_mechanism", "none"});
    const bool crowded = RanksHere(options) * ThreadsOf(options) > AvailableCores();
    add({"--mca", "mpi_yield_when_idle", crowded ? "1" : "0"});
    if (options.bind_to_cores && !crowded) {
      add({"--map-by", fmt::format("slot:PE={}", ThreadsOf(options)), "--bind-to", "core"});
    } else if (several) {
      add({"--map-by", "slot", "--bind-to", "none"});
    } else {
      add({"--bind-to", "none"});
    }
    if (several) {
      const std::vector<std::string> hosts = HostArguments(options, folders);
      argv.insert(argv.end(), hosts.begin(), hosts.end());
    }
  }
  add({"/bin/sh", "-c", (several ? kMakeFolder : "") + std::string(kRankShell), "sh",
       options.log_folder, options.worker});
  argv.insert(argv.end(), options.arguments.begin(), options.arguments.end());
  return argv;
}

std::vector<std::string> StepCommand(const LaunchOptions& options, const std::string& srun) {
  // PMIx ends the step within seconds of a rank's death (coordinator/slurm/batch_script.cc). The
  // shell of salloc may be a step itself, whose cores ours must share.
  std::vector<std::string> argv{srun,
                                "--mpi=pmix",
                                "--overlap",
                                "--kill-on-bad-exit=0",
                                "--wait=60",
                                "--distribution=block",
                                "--job-name=" + options.step_name,
                                fmt::format("--ntasks={}", options.ranks),
                                fmt::format("--cpus-per-task={}", ThreadsOf(options)),
                                "/bin/sh",
                                "-c",
                                kRankShell,
                                "sh",
                                options.log_folder,
                                options.worker};
  argv.insert(argv.end(), options.arguments.begin(), options.arguments.end());
  return argv;
}

absl::StatusOr<GuardedCommand> CommandFor(const LaunchOptions& options,
                                          const TemporaryFolders& folders) {
  TRIREME_CHECK(options.ranks >= 1);
  if (access(options.worker.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        fmt::format("the worker program {} cannot be run: {}; it is installed beside trireme",
                    options.worker, std::strerror(errno)));
  }
  const std::string mpirun = process::FindProgram("mpirun");
  const std::string srun = options.in_allocation ? process::FindProgram("srun") : "";
  if (options.in_allocation && srun.empty()) {
    return absl::NotFoundError(
        "SLURM_JOB_ID is set, but srun is not in PATH: apt install slurm-client, or unset it to "
        "run on this machine alone");
  }
  if (mpirun.empty() && !options.in_allocation && options.ranks > 1) {
    return absl::NotFoundError(
        fmt::format("mpirun is not in PATH, but {} ranks need it: apt install openmpi-bin (one "
                    "rank runs without: -n 1)",
                    options.ranks));
  }
  GuardedCommand command{
      options.in_allocation ? StepCommand(options, srun) : LaunchCommand(options, mpirun, folders),
      EnvironmentOf(options, folders),
      options.log_folder + "/mpirun.log",
      {folders.session},
      {}};
  if (folders.shared_memory != folders.session) {
    command.temporary_folders.push_back(folders.shared_memory);
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    command.signs_of_ranks.push_back(fmt::format("{}/rank-{}.log", options.log_folder, rank));
  }
  return command;
}

}  // namespace trireme::launcher
