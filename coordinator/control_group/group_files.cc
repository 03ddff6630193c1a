#include "coordinator/control_group/group_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <vector>

#include "runtime/base/folder_names.h"

namespace trireme::control_group {
namespace {

constexpr int64_t kPauseMs = 2;
constexpr int kDeepest = 16;

// "name number"; 0: it is not there.
uint64_t FieldIn(const std::string& file, const std::string& wanted) {
  std::ifstream in(file);
  std::string name;
  uint64_t number = 0;
  while (in >> name >> number) {
    if (name == wanted) return number;
  }
  return 0;
}

// Groups that the job has made within its own.
void RemoveInner(const std::string& folder, int depth = 0) {
  const absl::StatusOr<std::vector<std::string>> names = base::FolderNames(folder);
  if (!names.ok() || depth > kDeepest) return;
  for (const std::string& name : *names) {
    const std::string path = folder + "/" + name;
    struct stat about {};
    if (lstat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) continue;
    RemoveInner(path, depth + 1);
    rmdir(path.c_str());
  }
}

}  // namespace

int Join(const char* procs_file) {
  const int fd = open(procs_file, O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = write(fd, "0", 1) == 1 ? 0 : errno;
  close(fd);
  return error;
}

absl::Status WriteTo(const std::string& file, const std::string& text) {
  const int fd = open(file.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, file);
  const ssize_t written = write(fd, text.data(), text.size());
  const absl::Status status = written == static_cast<ssize_t>(text.size())
                                  ? absl::OkStatus()
                                  : absl::ErrnoToStatus(errno, "'" + text + "' to " + file);
  close(fd);
  return status;
}

void KillAll(const std::string& folder) { WriteTo(folder + "/cgroup.kill", "1").IgnoreError(); }

bool IsPopulated(const std::string& folder) {
  return FieldIn(folder + "/cgroup.events", "populated") != 0;
}

bool RemoveGroup(const std::string& folder, int64_t limit_ms) {
  for (int64_t waited_ms = 0;; waited_ms += kPauseMs) {
    if (rmdir(folder.c_str()) == 0 || errno == ENOENT) return true;
    if (errno != EBUSY || waited_ms >= limit_ms) return false;
    KillAll(folder);
    RemoveInner(folder);
    const timespec pause{0, kPauseMs * 1000000};
    nanosleep(&pause, nullptr);
  }
}

std::string MemoryKillsIn(const std::string& folder) {
  const std::string events = folder + "/memory.events";
  if (ReadMemoryEvents(events).kills == 0) return "";
  std::ostringstream text;
  text << std::ifstream(events).rdbuf();
  uint64_t limit = 0;  // "max" is none
  if (std::ifstream(folder + "/memory.max") >> limit) text << "memory.max " << limit << '\n';
  return text.str();
}

MemoryEvents MemoryEventsIn(const std::string& folder) {
  MemoryEvents events = ReadMemoryEvents(folder + "/memory.events");
  events.limit_bytes = 0;
  std::ifstream(folder + "/memory.max") >> events.limit_bytes;  // "max" is none
  return events;
}

MemoryEvents ReadMemoryEvents(const std::string& file) {
  return {FieldIn(file, "oom"), FieldIn(file, "oom_kill"), FieldIn(file, "memory.max")};
}

}  // namespace trireme::control_group
