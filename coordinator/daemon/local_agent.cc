// posix_spawn in a session of its own, so that neither a terminal's Ctrl-C nor our end touches it.
#include "coordinator/daemon/local_agent.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "runtime/base/file_lock.h"

namespace trireme::coordinator {
namespace {

constexpr int64_t kLookNs = 2'000'000'000;

int Start(const LocalAgentOptions& options) {
  std::vector<char*> argv{const_cast<char*>(options.program.c_str())};
  for (const std::string& argument : options.arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, options.log_file.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigfillset(&defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  int pid = -1;
  const int error =
      posix_spawn(&pid, options.program.c_str(), &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return pid;
  spdlog::error("cannot start {}: {}", options.program, std::strerror(error));
  return -1;
}

}  // namespace

LocalAgent::LocalAgent(LocalAgentOptions options)
    : options_(std::move(options)),
      thread_({.name = "local agent",
               .between = [this](int64_t now_unix_ns) { return Look(now_unix_ns); }}) {}

int64_t LocalAgent::Look(int64_t now_unix_ns) {
  int status = 0;
  if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      spdlog::warn("the agent of this machine has ended ({} {}); starting it again",
                   WIFEXITED(status) ? "exit code" : "signal",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
    pid_ = -1;
  }
  if (pid_ < 0 && !base::IsLocked(options_.lock_file)) {
    pid_ = Start(options_);
  } else if (pid_ < 0 && !told_) {
    spdlog::info("an agent is at work on this machine already; none is started beside it");
    told_ = true;
  }
  return now_unix_ns + kLookNs;
}

}  // namespace trireme::coordinator
