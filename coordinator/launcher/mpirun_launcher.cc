// mpirun's command line and environment, and the state of one launch as its guard reports it.
#include "coordinator/launcher/mpirun_launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "coordinator/command/command.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace trireme::launcher {
namespace {

namespace fs = std::filesystem;

// Each rank opens its own log, so that its last words need no living mpirun, and asks for a death
// signal with mpirun's end, should even the guard be killed (setpriv is of util-linux, essential in
// Debian).
constexpr const char* kRankShell =
    "log=$1; shift; exec >>\"$log/rank-${OMPI_COMM_WORLD_RANK:-0}.log\" 2>&1; "
    "if command -v setpriv >/dev/null; then exec setpriv --pdeathsig KILL \"$@\"; fi; exec \"$@\"";

// On another host nobody else has made the folder.
constexpr const char* kMakeFolder =
    "mkdir -p -m 700 \"${OMPI_MCA_btl_vader_backing_directory:-/dev/shm}\"; ";

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
  // For a rank without mpirun, which reads no command line of Open MPI.
  environment.push_back("OMPI_MCA_ess_singleton_isolated=1");
  environment.push_back("OMPI_MCA_orte_tmpdir_base=" + folders.session);
  environment.push_back("OMPI_MCA_btl_vader_backing_directory=" + folders.shared_memory);
  const size_t ours = environment.size();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool given =
        std::any_of(environment.begin(), environment.begin() + static_cast<long>(ours),
                    [&](const std::string& mine) { return NameOf(mine) == NameOf(*entry); });
    if (!given && !SetByMpirun(*entry)) environment.emplace_back(*entry);
  }
  return environment;
}

// Ranks fill the hosts in order; a cut link ends the launch within seconds instead of never.
std::vector<std::string> HostArguments(const LaunchOptions& options) {
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
  return argv;
}

absl::StatusOr<std::string> MakeTemporaryFolder(const std::string& base) {
  std::string path = base + "/trireme-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, fmt::format("cannot make a folder in {}", base));
  }
  return path;
}

// Logs of an earlier attempt become logs.1, logs.2 ..., so that no diagnosis mixes two attempts.
void KeepOldLogs(const std::string& run_folder) {
  const std::string logs = run_folder + "/logs";
  std::error_code error;
  if (!fs::exists(logs, error) || fs::is_empty(logs, error)) return;
  for (int number = 1; number < 100000; ++number) {
    const std::string kept = fmt::format("{}.{}", logs, number);
    if (fs::exists(kept, error)) continue;
    fs::rename(logs, kept, error);
    return;
  }
}

absl::Status PrepareRunFolder(const std::string& run_folder) {
  std::error_code error;
  KeepOldLogs(run_folder);
  for (const char* name : {"/logs", "/recorder"}) {
    fs::create_directories(run_folder + name, error);
    if (error) {
      return absl::FailedPreconditionError(
          fmt::format("cannot make {}{}: {}", run_folder, name, error.message()));
    }
  }
  for (const auto& entry : fs::directory_iterator(run_folder + "/recorder", error)) {
    std::error_code ignored;
    if (entry.path().extension() == ".rec") fs::remove(entry.path(), ignored);
  }
  return absl::OkStatus();
}

}  // namespace

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
      const std::vector<std::string> hosts = HostArguments(options);
      argv.insert(argv.end(), hosts.begin(), hosts.end());
    }
  }
  add({"/bin/sh", "-c", (several ? kMakeFolder : "") + std::string(kRankShell), "sh",
       options.run_folder + "/logs", options.worker});
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
  const std::string mpirun = command::FindProgram("mpirun");
  if (mpirun.empty() && options.ranks > 1) {
    return absl::NotFoundError(
        fmt::format("mpirun is not in PATH, but {} ranks need it: apt install openmpi-bin (one "
                    "rank runs without: -n 1)",
                    options.ranks));
  }
  GuardedCommand command{LaunchCommand(options, mpirun, folders),
                         EnvironmentOf(options, folders),
                         options.run_folder + "/logs/mpirun.log",
                         {folders.session}};
  if (folders.shared_memory != folders.session) {
    command.temporary_folders.push_back(folders.shared_memory);
  }
  return command;
}

absl::StatusOr<std::unique_ptr<MpirunLauncher>> MpirunLauncher::Start(
    const LaunchOptions& options) {
  RETURN_IF_ERROR(CommandFor(options, {}).status());
  RETURN_IF_ERROR(PrepareRunFolder(options.run_folder));
  // In /tmp because Open MPI puts sockets there, whose paths are short.
  ASSIGN_OR_RETURN(const std::string session, MakeTemporaryFolder("/tmp"));
  const auto shared = MakeTemporaryFolder("/dev/shm");
  auto command = CommandFor(options, {session, shared.ok() ? *shared : session});
  const auto guard =
      command.ok() ? StartGuarded(*command) : absl::StatusOr<Guard>(command.status());
  if (!guard.ok()) {
    rmdir(session.c_str());
    if (shared.ok()) rmdir(shared->c_str());
    return guard.status();
  }
  return std::unique_ptr<MpirunLauncher>(
      new MpirunLauncher(options, command->temporary_folders, *guard));
}

MpirunLauncher::MpirunLauncher(const LaunchOptions& options, std::vector<std::string> folders,
                               Guard guard)
    : options_(options),
      temporary_folders_(std::move(folders)),
      guard_(guard),
      started_(Clock::now()) {}

MpirunLauncher::~MpirunLauncher() {
  if (!result_) {
    Kill();
    Wait();
  }
  close(guard_.control_fd);
}

void MpirunLauncher::Send(char request) {
  // The guard ignores nothing it can still read; after its end the pipe is broken, and that is no
  // news.
  sigset_t pipe_signal, before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  if (write(guard_.control_fd, &request, 1) < 0 && errno == EPIPE) {
    const timespec now{0, 0};
    sigtimedwait(&pipe_signal, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void MpirunLauncher::RequestStop() {
  if (result_) return;
  if (stop_at_) return Kill();
  stop_at_ = Clock::now();
  Send(kGuardStop);
}

void MpirunLauncher::Kill() {
  if (result_ || killed_) return;
  killed_ = true;
  Send(kGuardKill);
}

std::optional<LaunchResult> MpirunLauncher::Poll() {
  if (result_) return result_;
  int status = 0;
  const int pid = waitpid(guard_.pid, &status, WNOHANG);
  if (pid != 0) {
    const bool known = pid == guard_.pid;
    const int code = !known ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    // The guard removes them; this is for a guard that was killed.
    for (const std::string& folder : temporary_folders_) {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    }
    result_ = LaunchResult{code, stop_at_.has_value(), killed_};
    return result_;
  }
  const auto now = Clock::now();
  if (!stop_at_ && options_.deadline.count() > 0 && now - started_ > options_.deadline) {
    RequestStop();
  }
  if (stop_at_ && !killed_ && now - *stop_at_ > options_.grace) Kill();
  return std::nullopt;
}

LaunchResult MpirunLauncher::Wait() {
  while (true) {
    if (const auto result = Poll()) return *result;
    poll(nullptr, 0, 10);
  }
}

}  // namespace trireme::launcher
