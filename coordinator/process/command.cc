// posix_spawn with two pipes and a pidfd; one poll waits for all three.
#include "coordinator/process/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "runtime/base/status_macros.h"

namespace trireme::process {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLongestLine = 300;

// Closes when it goes.
class Fd {
 public:
  Fd() = default;
  ~Fd() { Close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Set(int fd) {
    Close();
    fd_ = fd;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Stream {
  Fd read_end, write_end;
  std::string text;
};

absl::Status Open(Stream& stream) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  stream.read_end.Set(ends[0]);
  stream.write_end.Set(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

// Takes what is there; false once it is more than the limit.
bool Drain(Stream& stream, size_t limit) {
  char block[16384];
  while (stream.read_end.get() >= 0) {
    const ssize_t got = read(stream.read_end.get(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) {
      stream.read_end.Close();
      return true;
    }
    stream.text.append(block, static_cast<size_t>(got));
    if (stream.text.size() > limit) return false;
  }
  return true;
}

std::string_view NameOf(std::string_view entry) { return entry.substr(0, entry.find('=')); }

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& ours) {
  std::vector<std::string> environment = ours;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool given = std::any_of(ours.begin(), ours.end(), [&](const std::string& mine) {
      return NameOf(mine) == NameOf(*entry);
    });
    if (!given) environment.emplace_back(*entry);
  }
  return environment;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<pid_t> Spawn(const std::string& program, const Command& command, int output,
                            int errors) {
  const std::vector<char*> argv = Pointers(command.argv);
  const std::vector<std::string> variables = EnvironmentWith(command.environment);
  const std::vector<char*> environment = Pointers(variables);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigfillset(&defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, program.c_str(), &files, &attributes, argv.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return absl::ErrnoToStatus(error, "cannot start " + program);
  return pid;
}

// Until the child has ended; it is not reaped yet.
absl::Status Listen(const Command& command, int child, Stream& output, Stream& errors) {
  const Clock::time_point end = Clock::now() + command.deadline;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) {
      return absl::DeadlineExceededError(fmt::format(
          "{} has not ended within {:.1f} s", command.argv[0], command.deadline.count() / 1000.0));
    }
    pollfd fds[3] = {
        {child, POLLIN, 0}, {output.read_end.get(), POLLIN, 0}, {errors.read_end.get(), POLLIN, 0}};
    if (poll(fds, 3, static_cast<int>(std::min<int64_t>(left, 60000))) < 0 && errno != EINTR) {
      return absl::ErrnoToStatus(errno, "cannot wait for " + command.argv[0]);
    }
    // Looked at before the streams: what it wrote before its end is then in them.
    const bool ended = fds[0].revents != 0;
    for (Stream* stream : {&output, &errors}) {
      if (Drain(*stream, command.most_output_bytes)) continue;
      return absl::ResourceExhaustedError(fmt::format("{} has written more than {} bytes",
                                                      command.argv[0], command.most_output_bytes));
    }
    if (ended) return absl::OkStatus();
  }
}

int Reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  while (true) {
    const size_t end = std::min(rest.find(':'), rest.size());
    std::string candidate(rest.substr(0, end));
    candidate += "/" + name;
    std::error_code ignored;
    if (access(candidate.c_str(), X_OK) == 0 &&
        std::filesystem::is_regular_file(candidate, ignored)) {
      return candidate;
    }
    if (end == rest.size()) return "";
    rest.remove_prefix(end + 1);
  }
}

absl::StatusOr<CommandResult> RunCommand(const Command& command) {
  if (command.argv.empty()) return absl::InvalidArgumentError("no program was named");
  const std::string& name = command.argv[0];
  const std::string program = name.find('/') == std::string::npos ? FindProgram(name) : name;
  if (program.empty()) return absl::NotFoundError(name + " is not in PATH");
  Stream output, errors;
  RETURN_IF_ERROR(Open(output));
  RETURN_IF_ERROR(Open(errors));
  ASSIGN_OR_RETURN(const pid_t pid,
                   Spawn(program, command, output.write_end.get(), errors.write_end.get()));
  output.write_end.Close();
  errors.write_end.Close();
  Fd child;
  child.Set(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const absl::Status heard = child.get() < 0 ? absl::ErrnoToStatus(errno, "cannot watch " + name)
                                             : Listen(command, child.get(), output, errors);
  if (!heard.ok()) kill(-pid, SIGKILL);
  const int code = Reap(pid);
  RETURN_IF_ERROR(heard);
  return CommandResult{code, std::move(output.text), std::move(errors.text)};
}

std::string FirstLine(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n' && !line.empty()) break;
    if (line.size() >= kLongestLine) return line + "...";
    if (c >= ' ' || c < 0) line += c;
  }
  return line;
}

absl::StatusOr<std::string> OutputOf(const Command& command) {
  ASSIGN_OR_RETURN(CommandResult result, RunCommand(command));
  if (result.exit_code == 0) return std::move(result.output);
  const std::string words = FirstLine(result.errors.empty() ? result.output : result.errors);
  return absl::FailedPreconditionError(fmt::format(
      "{}: exit code {}{}{}", command.argv[0], result.exit_code, words.empty() ? "" : ": ", words));
}

}  // namespace trireme::process
