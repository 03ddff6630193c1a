#include "coordinator/control_group/attempt_groups.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "coordinator/control_group/cpu_choice.h"
#include "coordinator/control_group/cpus_here.h"
#include "coordinator/control_group/group_files.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"

namespace trireme::control_group {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRemoveLimitMs = 2000;
constexpr int64_t kLockLimitMs = 1000, kLockPauseMs = 2;
constexpr char kPrefix[] = "trireme-";
constexpr char kKeptCpus[] = "user.trireme.cpus";  // an attribute of a group
constexpr size_t kMostKeptBytes = 1 << 16;         // what the kernel lets one have

// FNV-1a: the same for every build.
uint32_t HashOf(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

std::string OwnerOf(const std::string& state_folder) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(fs::absolute(state_folder, error), error);
  return fmt::format(".{:08x}", HashOf(error ? state_folder : path.string()));
}

absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "cannot make " + path);
}

absl::Status NoKill() {
  return absl::FailedPreconditionError("the kernel has no cgroup.kill; Linux 5.14 and later do");
}

// One choice of CPUs at a time, of all agents and threads. Let go by hand: a guard that another
// thread forks meanwhile has the same descriptor until it closes what it inherits.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : fd_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ < 0) status_ = absl::ErrnoToStatus(errno, "cannot open " + folder);
    for (int64_t waited_ms = 0; fd_ >= 0 && !held_; waited_ms += kLockPauseMs) {
      held_ = flock(fd_, LOCK_EX | LOCK_NB) == 0;
      if (held_) return;
      if (errno != EWOULDBLOCK && errno != EINTR) {
        status_ = absl::ErrnoToStatus(errno, "cannot lock " + folder);
        return;
      }
      if (waited_ms >= kLockLimitMs) {
        status_ = absl::UnavailableError("another agent holds " + folder + " for long");
        return;
      }
      const timespec pause{0, kLockPauseMs * 1000000};
      nanosleep(&pause, nullptr);
    }
  }
  ~FolderLock() {
    if (held_) flock(fd_, LOCK_UN);
    if (fd_ >= 0) close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  // Why it is not held.
  const absl::Status& status() const { return status_; }

 private:
  int fd_;
  bool held_ = false;
  absl::Status status_;
};

// Which CPUs the group with this folder was given last. They are kept with the group, and end with
// it: an end of the unit takes the controller away, and with it cpuset.cpus of all groups, and who
// chooses for one of them has to know what the others get again.
CpuSet KeptCpus(const std::string& folder) {
  std::string text(kMostKeptBytes, '\0');
  const ssize_t got = getxattr(folder.c_str(), kKeptCpus, text.data(), text.size());
  if (got <= 0) return {};
  return ParseCpuList(std::string_view(text).substr(0, static_cast<size_t>(got)))
      .value_or(CpuSet{});
}

// Where this fails they are the attempt's all the same, but another agent may give it others.
void KeepCpus(const std::string& folder, const std::string& text) {
  if (text.empty()) {
    removexattr(folder.c_str(), kKeptCpus);
  } else {
    setxattr(folder.c_str(), kKeptCpus, text.data(), text.size(), 0);
  }
}

// A limit that is there is let be: one that is set below what is taken already would kill.
absl::Status SetIfNone(const std::string& file, const std::string& none, const std::string& text) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return in.is_open() && word != none ? absl::OkStatus() : WriteTo(file, text);
}

}  // namespace

AttemptGroups::AttemptGroups(std::string root, const Delegation& delegation, std::string owner)
    : root_(std::move(root)),
      base_(delegation.folder),
      owner_(std::move(owner)),
      delegation_(delegation) {}

absl::StatusOr<std::unique_ptr<AttemptGroups>> AttemptGroups::Open(const std::string& state_folder,
                                                                   const std::string& root,
                                                                   CpuSets cpu_sets) {
  const Delegation delegation = FindDelegation(root);
  if (delegation.kind == Kind::kNoVersion2) {
    return absl::FailedPreconditionError("no cgroup v2 is mounted");
  }
  if (delegation.kind == Kind::kNotDelegated) {
    return absl::FailedPreconditionError(
        delegation.folder + " is not delegated to us; in the agent's unit Delegate=yes does so");
  }
  if (!delegation.kills) return NoKill();
  std::unique_ptr<AttemptGroups> groups(new AttemptGroups(root, delegation, OwnerOf(state_folder)));
  // Before the leaf is entered, which may change what this process is bound to.
  groups->shared_cpus_ = cpu_sets == CpuSets::kNone ? "so says --control-groups no-cpuset"
                                                    : WhyCpusAreShared(delegation, root);
  const std::string leaf = root + delegation.folder + "/" + kAgentLeaf;
  RETURN_IF_ERROR(MakeFolder(leaf));
  if (access((leaf + "/cgroup.kill").c_str(), F_OK) != 0) return NoKill();
  if (const int error = Join(ProcsFile(leaf).c_str()); error != 0) {
    return absl::ErrnoToStatus(error, "cannot enter " + leaf);
  }
  for (const std::string controller : {"memory", "pids"}) {
    if (!delegation.Has(controller)) continue;
    const absl::Status enabled = groups->Enable(controller);
    if (enabled.ok()) groups->limits_ += (groups->limits_.empty() ? "" : " and ") + controller;
    if (groups->complaint_.empty()) groups->complaint_ = base::MessageOf(enabled);
  }
  if (groups->shared_cpus_.empty()) {
    const absl::Status enabled = groups->Enable("cpuset");
    if (groups->complaint_.empty()) groups->complaint_ = base::MessageOf(enabled);
  }
  return groups;
}

absl::Status AttemptGroups::Enable(const std::string& controller) const {
  const absl::Status written = WriteTo(root_ + base_ + "/cgroup.subtree_control", "+" + controller);
  const std::string message = base::MessageOf(written);
  if (!message.ends_with(strerror(EBUSY))) return written;
  return absl::UnavailableError(message + "; others than the agent are in that group");
}

std::string AttemptGroups::FolderOf(const std::string& attempt) const {
  return root_ + base_ + "/" + attempt + owner_;
}

absl::Status AttemptGroups::Make(const std::string& attempt, const Bounds& bounds) const {
  RETURN_IF_ERROR(MakeFolder(FolderOf(attempt)));
  return Bound(attempt, bounds);
}

absl::Status AttemptGroups::Bound(const std::string& attempt, const Bounds& bounds) const {
  const std::string folder = FolderOf(attempt);
  if (access(folder.c_str(), F_OK) != 0) return absl::OkStatus();
  absl::Status status = BoundMemory(folder, bounds);
  if (bounds.tasks > 0) {
    status.Update(BoundBy("pids", folder + "/pids.max", "max", std::to_string(bounds.tasks)));
  }
  return status;
}

absl::Status AttemptGroups::BoundMemory(const std::string& folder, const Bounds& bounds) const {
  if (!delegation_.Has("memory")) return absl::OkStatus();
  const absl::Status enabled = Enable("memory");
  if (!enabled.ok()) return bounds.memory_bytes == 0 ? absl::OkStatus() : enabled;
  // Before the limit, and without one: also of a kill by the node.
  if (bounds.ends_as_one) RETURN_IF_ERROR(WriteTo(folder + "/memory.oom.group", "1"));
  if (bounds.memory_bytes == 0) return absl::OkStatus();
  return SetIfNone(folder + "/memory.max", "max", std::to_string(bounds.memory_bytes));
}

absl::Status AttemptGroups::BoundBy(const std::string& controller, const std::string& file,
                                    const std::string& none, const std::string& text) const {
  if (!delegation_.Has(controller)) return absl::OkStatus();
  RETURN_IF_ERROR(Enable(controller));
  return SetIfNone(file, none, text);
}

absl::StatusOr<std::string> AttemptGroups::GiveCpus(const std::string& attempt,
                                                    size_t count) const {
  const std::string folder = FolderOf(attempt), file = folder + "/cpuset.cpus";
  if (!shared_cpus_.empty() || count == 0 || access(folder.c_str(), F_OK) != 0) return "";
  const FolderLock lock(root_ + base_);
  RETURN_IF_ERROR(lock.status());
  RETURN_IF_ERROR(Enable("cpuset"));
  if (const std::string own = CpuListText(CpusIn(file)); !own.empty()) {
    KeepCpus(folder, own);
    return own;
  }
  const CpuPlaces usable = UsableCpus(base_, root_);
  const CpuSet taken = CpusOfOthers(folder);
  CpuSet chosen = KeptCpus(folder);
  const bool again =
      chosen.size() == count && std::all_of(chosen.begin(), chosen.end(), [&](int cpu) {
        return usable.contains(cpu) && !taken.contains(cpu);
      });
  if (!again) chosen = ChooseCpus(usable, taken, count);
  if (chosen.empty()) {
    KeepCpus(folder, "");  // others may have what it had
    const auto free = std::count_if(usable.begin(), usable.end(),
                                    [&](const auto& one) { return !taken.contains(one.first); });
    return absl::ResourceExhaustedError(
        fmt::format("it is to have {}, and {} of {} are free", count, free, usable.size()));
  }
  const std::string text = CpuListText(chosen);
  RETURN_IF_ERROR(WriteTo(file, text));
  KeepCpus(folder, text);
  return text;
}

CpuSet AttemptGroups::CpusOfOthers(const std::string& folder) const {
  CpuSet taken;
  const std::string above = root_ + base_;
  base::VisitNames(above, [&](const std::string& name) {
    const std::string other = above + "/" + name;
    if (other == folder) return;
    CpuSet theirs = CpusIn(other + "/cpuset.cpus");
    if (theirs.empty()) theirs = KeptCpus(other);
    taken.merge(theirs);
  }).IgnoreError();
  return taken;
}

void AttemptGroups::RemoveOthers(const std::set<std::string>& attempts) const {
  std::vector<std::string> others;
  base::VisitNames(root_ + base_, [&](const std::string& name) {
    if (!name.starts_with(kPrefix) || !name.ends_with(owner_)) return;
    const std::string attempt = name.substr(0, name.size() - owner_.size());
    if (attempts.count(attempt) == 0) others.push_back(attempt);
  }).IgnoreError();
  for (const std::string& attempt : others) KillAll(FolderOf(attempt));
  for (const std::string& attempt : others) RemoveGroup(FolderOf(attempt), kRemoveLimitMs);
}

}  // namespace trireme::control_group
