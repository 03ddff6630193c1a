#include "coordinator/launcher/joined_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "coordinator/control_group/group_files.h"
#include "coordinator/launcher/join_request.h"
#include "coordinator/launcher/process_title.h"

namespace trireme::launcher {
namespace {

constexpr int kHelperFd = 3;         // of the process in between
constexpr int64_t kWordsMs = 5000;   // for what the helper says, each time
constexpr int64_t kEndMs = 1000;     // for the verdict to be taken
constexpr int kLowestReceived = 10;  // descriptors of the command are moved above

std::vector<char*> PointersTo(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// As the helper's; one that we may not raise so far, as far as we may.
void ApplyLimits(const JoinRequest& request) {
  for (const JoinRequest::Limit& limit : request.limits) {
    const auto which = static_cast<__rlimit_resource>(limit.resource);
    rlimit ours{};
    if (setrlimit(which, &limit.value) == 0 || getrlimit(which, &ours) != 0) continue;
    ours.rlim_cur = std::min(limit.value.rlim_cur, ours.rlim_max);
    setrlimit(which, &ours);
  }
}

[[noreturn]] void ExecJoined(JoinRequest& request, const std::string& procs) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) signal(number, SIG_DFL);
  setpgid(0, 0);
  int high[3];
  for (int i = 0; i < 3; ++i) high[i] = fcntl(request.standard_fds[i], F_DUPFD, kLowestReceived);
  for (int i = 0; i < 3; ++i) dup2(high[i], i);
  close_range(3, ~0u, 0);
  umask(request.umask);
  if (chdir(request.working_folder.c_str()) != 0 && chdir("/") != 0) _exit(127);
  const std::vector<char*> argv = PointersTo(request.argv);
  const std::vector<char*> environment = PointersTo(request.environment);
  if (const int error = control_group::Join(procs.c_str()); error != 0) {
    dprintf(STDERR_FILENO, "%s %s: %s\n",
            error == ENOENT ? "its attempt has ended here:" : "no bounds by the kernel:",
            procs.c_str(), std::strerror(error));
    if (error == ENOENT) _exit(1);
  }
  ApplyLimits(request);
  execve(argv[0], argv.data(), environment.data());
  dprintf(STDERR_FILENO, "cannot start %s: %s\n", argv[0], std::strerror(errno));
  _exit(127);
}

// Until the command has ended; a helper that hangs up wants its end, as its own would have been.
char AwaitCommand(int command, int signals) {
  bool helper_there = true;
  while (true) {
    pollfd entries[] = {{signals, POLLIN, 0}, {helper_there ? kHelperFd : -1, POLLIN, 0}};
    poll(entries, 2, -1);
    signalfd_siginfo information;
    while (read(signals, &information, sizeof information) > 0) {
    }
    int status = 0;
    if (waitpid(command, &status, WNOHANG) == command) {
      return static_cast<char>(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    if (entries[1].revents != 0) {
      helper_there = false;
      kill(command, SIGTERM);
    }
  }
}

void BecomeBetween(int socket, const std::string& title) {
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  const int high = fcntl(socket, F_DUPFD, kLowestReceived);
  dup2(high, kHelperFd);
  close_range(kHelperFd + 1, ~0u, 0);
  if (chdir("/") != 0) _exit(1);
  prctl(PR_SET_NAME, "trireme-join");
  SetProcessTitle(title.c_str());
  for (const int number : {SIGINT, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  for (const int number : {SIGTERM, SIGCHLD}) signal(number, SIG_DFL);
}

[[noreturn]] void RunBetween(int socket, const std::string& title, const std::string& procs) {
  BecomeBetween(socket, title);
  absl::StatusOr<JoinRequest> request = ReceiveRequest(kHelperFd, JoinClockMs() + kWordsMs);
  if (!request.ok() || !SendByte(kHelperFd, kJoinReady, JoinClockMs() + kWordsMs).ok()) _exit(1);
  const absl::StatusOr<char> word = ReceiveByte(kHelperFd, JoinClockMs() + kWordsMs);
  if (!word.ok() || *word != kJoinGo) _exit(1);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_SETMASK, &children, nullptr);
  const int signals = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
  const int command = fork();
  if (command == 0) ExecJoined(*request, procs);
  // Who waits for the end of the command's output does not wait for us.
  for (const int fd : request->standard_fds) close(fd);
  const char code = command < 0 ? char{1} : AwaitCommand(command, signals);
  _exit(SendByte(kHelperFd, code, JoinClockMs() + kEndMs).ok() ? 0 : 1);
}

}  // namespace

absl::Status ServeJoin(int socket, const std::string& control_group) {
  // Made before the fork.
  const std::string title =
      "trireme-join " + std::filesystem::path(control_group).filename().string();
  const std::string procs = control_group::ProcsFile(control_group);
  const int pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot fork");
  if (pid == 0) {
    setsid();
    const int between = fork();
    if (between == 0) RunBetween(socket, title, procs);
    _exit(between < 0 ? 1 : 0);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnavailableError("cannot fork");
}

}  // namespace trireme::launcher
