// It ends when no descendant is left; who started it is watched through a pidfd.
#include "coordinator/launcher/process_guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "coordinator/control_group/group_files.h"
#include "coordinator/launcher/guard_files.h"
#include "coordinator/launcher/guard_search.h"
#include "coordinator/launcher/process_identity.h"
#include "coordinator/launcher/process_title.h"
#include "runtime/base/durable.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"

namespace trireme::launcher {
namespace {

// Of a guard, in this order.
constexpr int kControlFd = 3;
constexpr int kOutputFd = 4;
constexpr int kFolderFd = 5;
constexpr int kClaimedFd = 6;
constexpr int kStarterFd = 7;  // where the command ends with its starter
constexpr int kClaimLimitMs = 10000;
constexpr int64_t kTermToKillMs = 2000;
constexpr int64_t kAskAgainMs = 500;
constexpr int64_t kLookAgainMs = 20;  // for signs of ranks
constexpr int64_t kSignsLimitMs = 10000;
constexpr int64_t kGroupEndsMs = 5000;

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000} + now.tv_nsec / 1000000;
}

int CodeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

void KillChildren() {
  const int self = getpid();
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const int pid = std::atoi(entry->d_name);
    if (LookAtProcess(pid).parent == self) kill(pid, SIGKILL);
  }
  closedir(folder);
}

// Children of what is killed come to us, so this ends only when no descendant is left.
void KillAndReapAll(int& command, int& code) {
  while (true) {
    KillChildren();
    int status = 0;
    int pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      if (pid == command) {
        command = -1;
        code = CodeOf(status);
      }
    }
    if (pid < 0 && errno == ECHILD) return;
    const timespec pause{0, 2000000};
    nanosleep(&pause, nullptr);
  }
}

[[noreturn]] void ExecCommand(char* const* argv, char* const* environment, const char* procs,
                              int guard) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR2}) signal(number, SIG_DFL);
  // A rank that does not listen yet, and an mpirun without ranks, must not end by it.
  signal(SIGUSR1, SIG_IGN);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guard) _exit(127);
  const int input = open("/dev/null", O_RDONLY);
  dup2(input, STDIN_FILENO);
  dup2(kOutputFd, STDOUT_FILENO);
  dup2(kOutputFd, STDERR_FILENO);
  close_range(3, ~0u, 0);
  if (const int error = procs == nullptr ? 0 : control_group::Join(procs); error != 0) {
    dprintf(STDERR_FILENO, "no bounds by the kernel: %s: %s\n", procs, std::strerror(error));
  }
  execve(argv[0], argv, environment);
  const char* why = std::strerror(errno);
  dprintf(STDERR_FILENO, "cannot start %s: %s\n", argv[0], why);
  _exit(127);
}

// When to ask the command to stop.
class Request {
 public:
  explicit Request(const std::vector<std::string>& signs) : signs_(signs) {}
  void Make() {
    if (made_at_ == 0) made_at_ = next_at_ = NowMs();
  }
  int64_t MsLeft() const {
    return made_at_ == 0 ? kAskAgainMs : std::max<int64_t>(0, next_at_ - NowMs());
  }
  // mpirun forwards a signal to the ranks that it has started, also to those that would end by it;
  // whoever does not listen yet has lost it. So it comes late enough, and again.
  bool Due() {
    if (made_at_ == 0 || MsLeft() > 0) return false;
    while (seen_ < signs_.size() && access(signs_[seen_].c_str(), F_OK) == 0) ++seen_;
    const int64_t now = NowMs();
    const bool ready = seen_ == signs_.size() || now - made_at_ >= kSignsLimitMs;
    next_at_ = now + (ready ? kAskAgainMs : kLookAgainMs);
    return ready;
  }

 private:
  const std::vector<std::string>& signs_;
  size_t seen_ = 0;      // of them
  int64_t made_at_ = 0;  // ms; 0: not yet
  int64_t next_at_ = 0;  // ms
};

// Waits for the command's end while obeying the FIFO; returns the exit code.
int Watch(int command, int signals, bool watch_starter, Request request) {
  int code = 1;
  int64_t kill_at = 0;  // ms; 0: no kill under way
  const auto terminate = [&] {
    if (kill_at == 0) kill_at = NowMs() + kTermToKillMs;
    kill(command, SIGTERM);
  };
  while (true) {
    pollfd fds[3] = {{signals, POLLIN, 0},
                     {kControlFd, POLLIN, 0},
                     {watch_starter ? kStarterFd : -1, POLLIN, 0}};
    const int64_t left = kill_at == 0 ? request.MsLeft() : std::max<int64_t>(0, kill_at - NowMs());
    poll(fds, 3, static_cast<int>(left));
    if (kill_at == 0 && request.Due()) kill(command, SIGUSR1);
    signalfd_siginfo information;
    while (read(signals, &information, sizeof information) > 0) {
    }
    int status = 0;
    int pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      if (pid != command) continue;
      code = CodeOf(status);
      int gone = -1;
      KillAndReapAll(gone, code);
      return code;
    }
    if (fds[1].revents != 0) {
      char word = 0;
      const ssize_t got = read(kControlFd, &word, 1);
      if (got == 1 && word == kGuardStop) request.Make();
      if (got == 1 && word == kGuardKill) terminate();
    }
    if (fds[2].revents != 0) {
      watch_starter = false;
      terminate();
    }
    if (kill_at != 0 && NowMs() >= kill_at) {
      KillAndReapAll(command, code);
      return code;
    }
  }
}

void RemoveFolders(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
}

// Others may have come in that are no descendants of ours. For the keeper stays what tells of kills
// by the kernel; the group itself is gone by the time it looks.
void EndGroup(const std::string& group) {
  if (group.empty()) return;
  control_group::KillAll(group);
  const std::string kills = control_group::MemoryKillsIn(group);
  if (!kills.empty()) {
    const int fd = openat(kFolderFd, kMemoryEvents, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const ssize_t written = write(fd, kills.data(), kills.size());
    static_cast<void>(written);  // a full disk: the end is told without
    close(fd);
  }
  control_group::RemoveGroup(group, kGroupEndsMs);
}

struct GuardFds {
  int control = -1;
  int output = -1;
  int folder = -1;   // to claim
  int claimed = -1;  // write end: errno of the claim
  int starter = -1;  // pidfd; -1: not watched
};

void PlaceFds(const GuardFds& fds) {
  const int from[] = {fds.control, fds.output, fds.folder, fds.claimed, fds.starter};
  int high[5];
  unsigned next = kControlFd;
  // Moved high first, so that none is overwritten before it is copied.
  for (int i = 0; i < 5; ++i) high[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD, 64);
  for (int i = 0; i < 5 && high[i] >= 0; ++i) next = dup2(high[i], kControlFd + i) + 1;
  close_range(next, ~0u, 0);
}

void BecomeGuard(const std::string& title) {
  setpgid(0, 0);  // the terminal's Ctrl-C is for our parent
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, kGuardName);
  SetProcessTitle(title.c_str());
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
}

struct Waiting {
  bool stop = false;
  bool kill = false;
};

// What was asked for while a disk held up the claim.
Waiting TakeRequests() {
  Waiting waiting;
  pollfd control{kControlFd, POLLIN, 0};
  char word = 0;
  while (poll(&control, 1, 0) > 0 && read(kControlFd, &word, 1) == 1) {
    waiting.stop = waiting.stop || word == kGuardStop;
    waiting.kill = waiting.kill || word == kGuardKill;
  }
  return waiting;
}

// Starts the command and returns its exit code when nothing is left of it.
int GuardCommand(char* const* argv, char* const* environment, const char* procs, bool watch_starter,
                 const std::vector<std::string>& signs) {
  const Waiting waiting = TakeRequests();
  if (waiting.kill) return base::kKilledCode;
  Request request(signs);
  if (waiting.stop) request.Make();
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_SETMASK, &children, nullptr);
  const int signals = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
  const int self = getpid();
  const int pid = fork();
  if (pid == 0) ExecCommand(argv, environment, procs, self);
  return pid < 0 ? 1 : Watch(pid, signals, watch_starter, std::move(request));
}

// The end of the starter must not be felt: no file of it stays open, no folder of it in use. What
// dies leaves its core beside its logs.
void LeaveStarter() {
  const int null = open("/dev/null", O_RDWR);
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  close(null);
  if (fchdir(kFolderFd) != 0 && chdir("/") != 0) _exit(1);
}

[[noreturn]] void RunGuard(const GuardedCommand& command, const std::string& title,
                           char* const* argv, char* const* environment, const GuardFds& fds) {
  PlaceFds(fds);
  BecomeGuard(title);
  LeaveStarter();
  const int error = ClaimFolder(kFolderFd);
  const ssize_t told = write(kClaimedFd, &error, sizeof error);
  static_cast<void>(told);  // the starter may be dead
  close(kClaimedFd);
  if (error != 0) _exit(1);
  const ExitFile verdict(kFolderFd);
  const std::string procs = control_group::ProcsFile(command.control_group);
  const bool replaced = command.replaced && command.replaced();
  const int code = replaced ? base::kKilledCode
                            : GuardCommand(argv, environment,
                                           command.control_group.empty() ? nullptr : procs.c_str(),
                                           fds.starter >= 0, command.signs_of_ranks);
  EndGroup(command.control_group);
  RemoveFolders(command.temporary_folders);
  verdict.Write(code);
  _exit(code);
}

// The guard's parent ends at once, so the guard belongs to init.
[[noreturn]] void ForkTwice(const GuardedCommand& command, const std::string& title,
                            char* const* argv, char* const* environment, const GuardFds& fds) {
  setsid();
  const int pid = fork();
  if (pid == 0) RunGuard(command, title, argv, environment, fds);
  _exit(pid < 0 ? 1 : 0);
}

absl::StatusOr<int> OpenOutput(const std::string& path) {
  const int output = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (output < 0) return base::ErrnoStatus(errno, "cannot open " + path);
  return output;
}

// A pidfd, closed by exec. glibc 2.36 declares pidfd_open for C only.
int OpenSelf() { return static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)); }

// Waits for the claim by the other end of `fd`.
absl::Status AwaitClaim(int fd, const std::string& folder) {
  pollfd claimed{fd, POLLIN, 0};
  int ready = 0;
  while ((ready = poll(&claimed, 1, kClaimLimitMs)) < 0 && errno == EINTR) {
  }
  if (ready == 0) {
    return absl::DeadlineExceededError("the guard has not claimed " + folder + " within 10 s");
  }
  int error = 0;
  if (read(fd, &error, sizeof error) != sizeof error) {
    return absl::UnavailableError("the guard died before it had claimed " + folder);
  }
  if (error == 0 || error == EEXIST) return absl::OkStatus();
  return base::ErrnoStatus(error, "the guard cannot claim " + folder);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::Status StartGuarded(const GuardedCommand& command, const std::string& folder) {
  const std::string title = GuardTitle(folder);  // made before the fork
  const std::vector<char*> argv = Pointers(command.argv);
  const std::vector<char*> environment = Pointers(command.environment);
  const std::string fifo = folder + "/control";
  if (mkfifo(fifo.c_str(), 0600) != 0 && errno != EEXIST) {
    return base::ErrnoStatus(errno, "cannot make " + fifo);
  }
  ASSIGN_OR_RETURN(const int output, OpenOutput(command.output_path));
  int claimed[2] = {-1, -1};
  // Read and write: without a writer of its own the guard would see an end of file.
  const GuardFds fds{open(fifo.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW), output,
                     open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                     pipe2(claimed, O_CLOEXEC) == 0 ? claimed[1] : -1,
                     command.ends_with_starter ? OpenSelf() : -1};
  absl::Status status;
  if (fds.control < 0 || fds.folder < 0 || fds.claimed < 0 ||
      (command.ends_with_starter && fds.starter < 0)) {
    status = absl::ErrnoToStatus(errno, "cannot open " + folder + " and its control");
  } else if (command.called_off && command.called_off()) {
    status = absl::CancelledError("the start was called off");
  } else if (const int pid = fork(); pid == 0) {
    ForkTwice(command, title, argv.data(), environment.data(), fds);
  } else if (pid < 0) {
    status = absl::ErrnoToStatus(errno, "cannot fork");
  } else {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  for (int fd : {fds.control, fds.output, fds.folder, fds.claimed, fds.starter}) close(fd);
  if (status.ok()) status = AwaitClaim(claimed[0], folder);
  close(claimed[0]);
  return status;
}

}  // namespace trireme::launcher
