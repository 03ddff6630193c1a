// A pidfd is taken before the environment is read: if both are of the same process the signal is
// right, and if the pid changed hands in between, the process of the pidfd has ended and gets none.
#include "coordinator/keeper/marked_processes.h"

#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "coordinator/keeper/attempt_record.h"
#include "coordinator/launcher/process_identity.h"

namespace trireme::keeper {
namespace {

constexpr std::string_view kAttempt = "TRIREME_ATTEMPT=";
constexpr std::string_view kRunFolder = "TRIREME_RUN_FOLDER=";
constexpr size_t kMostEnvironmentBytes = 4 << 20;  // the kernel admits less

// Entries end with '\0'.
std::string_view Value(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const size_t end = environment.find('\0');
    const std::string_view entry = environment.substr(0, end);
    if (entry.substr(0, name.size()) == name) return entry.substr(name.size());
    if (end == std::string_view::npos) break;
    environment.remove_prefix(end + 1);
  }
  return {};
}

// The attempt of a process of this job and run folder.
std::optional<uint32_t> AttemptIn(std::string_view environment, const Mark& mark) {
  if (Value(environment, kRunFolder) != mark.run_folder) return std::nullopt;
  const std::string name(Value(environment, kAttempt));
  const std::string job = std::to_string(mark.job_id) + "-";
  if (name.compare(0, job.size(), job) != 0) return std::nullopt;
  return static_cast<uint32_t>(std::strtoul(name.c_str() + job.size(), nullptr, 10));
}

bool KillIf(int pid, const Mark& mark, const std::function<bool(uint32_t)>& condemns) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return false;
  const auto environment = launcher::ProcessFile(pid, "environ", kMostEnvironmentBytes);
  const auto attempt = environment ? AttemptIn(*environment, mark) : std::nullopt;
  const bool condemned = attempt && condemns(*attempt);
  if (condemned) syscall(SYS_pidfd_send_signal, fd, SIGKILL, nullptr, 0);
  close(fd);
  return condemned;
}

}  // namespace

std::vector<std::string> Mark::Environment() const {
  return {std::string(kAttempt) + AttemptName(job_id, attempt),
          std::string(kRunFolder) + run_folder};
}

Mark MarkOf(const v1::DesiredAttempt& attempt) {
  return {attempt.job_id(), attempt.attempt(), attempt.launch().run_folder()};
}

bool CarriesMark(int pid, const Mark& mark) {
  errno = 0;
  const auto environment = launcher::ProcessFile(pid, "environ", kMostEnvironmentBytes);
  if (!environment) return errno == EACCES || errno == EPERM;
  return AttemptIn(*environment, mark) == mark.attempt;
}

bool CarriesOtherMark(int pid, const Mark& mark) {
  const auto environment = launcher::ProcessFile(pid, "environ", kMostEnvironmentBytes);
  return environment && !Value(*environment, kAttempt).empty() &&
         AttemptIn(*environment, mark) != mark.attempt;
}

int KillMarked(const Mark& mark, const std::function<bool(uint32_t attempt)>& condemns) {
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return 1;  // nobody can say that nothing is left
  int found = 0;
  while (const dirent* entry = readdir(folder)) {
    const int pid = std::atoi(entry->d_name);
    if (pid > 0 && pid != getpid()) found += KillIf(pid, mark, condemns) ? 1 : 0;
  }
  closedir(folder);
  return found;
}

}  // namespace trireme::keeper
