// The guard: a child subreaper between us and the command; it ends when no descendant is left.
#include "coordinator/launcher/process_guard.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
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

namespace trireme::launcher {
namespace {

constexpr int kControlFd = 3;
constexpr int kOutputFd = 4;
constexpr int64_t kTermToKillMs = 2000;
constexpr int64_t kAskAgainMs = 500;

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000} + now.tv_nsec / 1000000;
}

int CodeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

struct Process {
  int parent = -1;
  char state = 0;  // 'Z': it has ended
};

// By /proc/PID/stat, whose second field may hold anything but its last ')'.
Process LookAt(const char* pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%s/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[512];
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return {};
  text[got] = '\0';
  const char* after = std::strrchr(text, ')');
  Process process;
  if (after == nullptr || std::sscanf(after + 1, " %c %d", &process.state, &process.parent) != 2) {
    return {};
  }
  return process;
}

// Calls `visit(pid, state)` for every child of `parent`, reaped ones not.
template <typename Visit>
void ForEachChild(int parent, const Visit& visit) {
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const Process process = LookAt(entry->d_name);
    if (process.parent == parent) visit(std::atoi(entry->d_name), process.state);
  }
  closedir(folder);
}

void KillChildren() {
  ForEachChild(getpid(), [](int pid, char) { kill(pid, SIGKILL); });
}

bool HasLiveChild(int parent) {
  bool live = false;
  ForEachChild(parent, [&](int, char state) { live = live || state != 'Z'; });
  return live;
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

[[noreturn]] void ExecCommand(char* const* argv, char* const* environment, int guard) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2}) signal(number, SIG_DFL);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guard) _exit(127);
  const int input = open("/dev/null", O_RDONLY);
  dup2(input, STDIN_FILENO);
  dup2(kOutputFd, STDOUT_FILENO);
  dup2(kOutputFd, STDERR_FILENO);
  close_range(3, ~0u, 0);
  execve(argv[0], argv, environment);
  const char* why = std::strerror(errno);
  dprintf(STDERR_FILENO, "cannot start %s: %s\n", argv[0], why);
  _exit(127);
}

// Waits for the command's end while obeying the control pipe; returns the exit code.
int Watch(int command, int signals) {
  int code = 1;
  int64_t kill_at = 0;  // ms; 0: no kill under way
  int64_t ask_at = 0;   // ms; 0: no stop was asked for
  bool listen = true;
  const auto terminate = [&] {
    if (kill_at == 0) kill_at = NowMs() + kTermToKillMs;
    kill(command, SIGTERM);
  };
  // mpirun obeys once it has ranks; before and after that the signal would end it.
  const auto ask = [&] {
    ask_at = NowMs() + kAskAgainMs;
    if (HasLiveChild(command)) kill(command, SIGUSR1);
  };
  while (true) {
    pollfd fds[2] = {{signals, POLLIN, 0}, {listen ? kControlFd : -1, POLLIN, 0}};
    const int64_t left = kill_at == 0 ? kAskAgainMs : std::max<int64_t>(0, kill_at - NowMs());
    poll(fds, 2, static_cast<int>(left));
    // mpirun forwards a signal to the ranks that it has started; to one that comes up later the
    // request must be made again.
    if (ask_at != 0 && NowMs() >= ask_at && kill_at == 0) ask();
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
      char request = 0;
      const ssize_t got = read(kControlFd, &request, 1);
      if (got == 1 && request == kGuardStop) ask();
      if (got == 1 && request == kGuardKill) terminate();
      if (got == 0) {  // nobody is left to report to
        listen = false;
        terminate();
      }
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

struct Pipes {
  int control = -1;
  int output = -1;
};

[[noreturn]] void RunGuard(const GuardedCommand& command, char* const* argv,
                           char* const* environment, Pipes pipes) {
  // Moved high first, so that neither is overwritten before it is copied.
  const int control = fcntl(pipes.control, F_DUPFD, 64);
  const int output = fcntl(pipes.output, F_DUPFD, 64);
  dup2(control, kControlFd);
  dup2(output, kOutputFd);
  close_range(kOutputFd + 1, ~0u, 0);
  setpgid(0, 0);  // the terminal's Ctrl-C is for our parent
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "trireme-guard");
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_SETMASK, &children, nullptr);
  signal(SIGCHLD, SIG_DFL);
  const int signals = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
  const int self = getpid();
  const int pid = fork();
  if (pid == 0) ExecCommand(argv, environment, self);
  const int code = pid < 0 ? 1 : Watch(pid, signals);
  RemoveFolders(command.temporary_folders);
  _exit(code);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<Guard> StartGuarded(const GuardedCommand& command) {
  const std::vector<char*> argv = Pointers(command.argv);
  const std::vector<char*> environment = Pointers(command.environment);
  const int output =
      open(command.output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (output < 0) return absl::ErrnoToStatus(errno, "cannot open " + command.output_path);
  int control[2];
  if (pipe2(control, O_CLOEXEC) != 0) {
    const int error = errno;
    close(output);
    return absl::ErrnoToStatus(error, "cannot make a pipe");
  }
  const int pid = fork();
  if (pid == 0) RunGuard(command, argv.data(), environment.data(), {control[0], output});
  const int error = errno;
  close(output);
  close(control[0]);
  if (pid < 0) {
    close(control[1]);
    return absl::ErrnoToStatus(error, "cannot fork");
  }
  return Guard{pid, control[1]};
}

}  // namespace trireme::launcher
