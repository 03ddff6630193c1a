// A pidfd is taken first and the identity compared afterwards: what the pidfd names was then alive
// under this pid, and it names the same process for ever.
#include "coordinator/launcher/process_identity.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "runtime/base/own_program.h"

namespace trireme::launcher {
namespace {

// -1 if it has ended.
int OpenProcess(const ProcessIdentity& process) {
  if (process.pid <= 0 || process.boot_id != base::BootId()) return -1;
  // glibc 2.36 declares pidfd_open for C only.
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  if (fd < 0) return -1;
  const ProcessStat now = LookAtProcess(process.pid);
  const bool gone = now.parent < 0 || now.state == 'Z' || now.state == 'X';
  if (!gone && now.start_ticks == process.start_ticks) return fd;
  close(fd);
  return -1;
}

}  // namespace

// The second field may hold anything but its last ')'.
ProcessStat LookAtProcess(int pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[1024];
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return {};
  text[got] = '\0';
  const char* after = std::strrchr(text, ')');
  ProcessStat process;
  unsigned long long start = 0;
  // proc(5): state and ppid are fields 3 and 4, starttime is field 22.
  if (after == nullptr || std::sscanf(after + 1,
                                      " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                      "%*s %*s %*s %*s %llu",
                                      &process.state, &process.parent, &start) != 3) {
    return {};
  }
  process.start_ticks = start;
  return process;
}

std::optional<std::string> ProcessFile(int pid, const char* file, size_t most_bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char block[8192];
  ssize_t got = 0;
  while (text.size() < most_bytes && (got = read(fd, block, sizeof block)) > 0) {
    text.append(block, static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

ProcessIdentity IdentityOf(int pid) {
  return {pid, LookAtProcess(pid).start_ticks, base::BootId()};
}

bool IsAlive(const ProcessIdentity& process) {
  const int fd = OpenProcess(process);
  if (fd < 0) return false;
  close(fd);
  return true;
}

bool SendSignal(const ProcessIdentity& process, int signal) {
  const int fd = OpenProcess(process);
  if (fd < 0) return false;
  const bool sent = syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0) == 0;
  close(fd);
  return sent;
}

}  // namespace trireme::launcher
