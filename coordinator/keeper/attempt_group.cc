#include "coordinator/keeper/attempt_group.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "coordinator/control_group/group_files.h"
#include "coordinator/keeper/attempt_folder.h"
#include "coordinator/launcher/guard_files.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/readable_bytes.h"
#include "runtime/base/status_macros.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSlackBytes = uint64_t{1} << 30;
// Threads of mpirun, its daemons and its ssh to each other node; of a rank, beside those that
// compute.
constexpr uint64_t kTasks = 1024, kTasksOfARank = 256;
constexpr int64_t kRemoveLimitMs = 200;
constexpr char kCpusFile[] = "cpus";

const control_group::AttemptGroups* GroupsOf(const KeeperOptions& options) {
  const bool others = options.in_allocation || options.ranks_end_with_us || options.slurm;
  return others ? nullptr : options.control_groups.get();
}

// Of the nearest folder that is there: those of a job are made when it begins.
Pages PagesIn(fs::path folder) {
  struct statfs about {};
  while (statfs(folder.c_str(), &about) != 0) {
    struct stat link {};
    // What it leads to may be anywhere.
    if (errno != ENOENT || lstat(folder.c_str(), &link) == 0) return Pages::kStay;
    if (folder == folder.parent_path()) return Pages::kStay;
    folder = folder.parent_path();
  }
  return PagesOn(about.f_type);
}

Pages PagesOf(const v1::LaunchSpec& launch) {
  const v1::JobSpec& job = launch.job();
  Pages worst = Pages::kWrittenBack;
  for (const std::string& folder :
       {launch.run_folder(), job.checkpoint().directory(), job.offload().directory()}) {
    if (!folder.empty()) worst = std::max(worst, PagesIn(folder));
  }
  return worst;
}

uint64_t RanksOn(const v1::LaunchSpec& launch, const std::string& node) {
  for (const v1::NodeAllocation& part : launch.allocation()) {
    if (part.node() == node) return part.ranks();
  }
  return 0;
}

bool OffloadsToFiles(const v1::OffloadSpec& offload) {
  return offload.optimizer_state() == "file" || offload.activations() == "file";
}

// "oom" counts limits of the group and of those within it, never the node's lack: which one it was
// is not known where a guard of before kept no limit, or the group has none. `killed`: whom, where.
v1::Failure MemoryKillOf(const control_group::MemoryEvents& events, const std::string& killed) {
  v1::Failure failure;
  failure.set_rank(-1);
  failure.set_exit_code(base::kKilledCode);
  if (events.limit_hits > 0) {
    failure.set_headline(fmt::format(
        "{}: out of memory ({})", killed,
        events.limit_bytes > 0 ? fmt::format("its limit there, memory.max of {}, or one within it",
                                             base::ReadableBytes(events.limit_bytes))
                               : "the limit of its control group there, or of one within it"));
    failure.set_next_action(
        "raise resources.memory_mib_per_rank, or make the job smaller: docs/operations/memory.md");
  } else {
    failure.set_headline(killed +
                         ": the node, or a control group above the attempt's, is out of memory");
    failure.set_next_action(
        "see what else takes memory there, or make the job smaller: docs/operations/memory.md");
  }
  return failure;
}

}  // namespace

Pages PagesOn(int64_t file_system) {
  switch (static_cast<uint32_t>(file_system)) {
    case EXT4_SUPER_MAGIC:  // and ext2
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
      return Pages::kWrittenBack;
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case HUGETLBFS_MAGIC:
      return Pages::kStay;
    default:
      return Pages::kHeldUp;
  }
}

control_group::Bounds BoundsOf(const v1::LaunchSpec& launch, const std::string& node) {
  control_group::Bounds bounds;
  const uint64_t ranks = RanksOn(launch, node);
  if (ranks == 0) return bounds;
  bounds.ends_as_one = launch.allocation(0).node() == node;
  const auto threads = std::max<uint64_t>(
      launch.threads_per_rank(), static_cast<uint64_t>(std::max<int64_t>(
                                     0, static_cast<int64_t>(launch.job().runtime().threads()))));
  const uint64_t bytes = launch.memory_bytes_per_rank();
  if (bytes > 0) bounds.memory_bytes = ranks * (bytes + bytes / 4) + kSlackBytes;
  bounds.tasks = kTasks + ranks * (threads + kTasksOfARank);
  return bounds;
}

size_t CpusOf(const v1::LaunchSpec& launch, const std::string& node) {
  const v1::ResourceSpec& asked = launch.job().resources();
  const int64_t threads = std::max<int64_t>(0, launch.job().runtime().threads());
  // The CPU of such a rank is one that nobody has asked for; it launches kernels and has threads of
  // the driver and of NCCL beside.
  if (asked.gpus_per_rank() > 0 && asked.cpus_per_rank() == 0 && threads == 0) return 0;
  return RanksOn(launch, node) *
         std::max<size_t>(launch.threads_per_rank(), static_cast<size_t>(threads));
}

control_group::Bounds BoundsHere(const v1::LaunchSpec& launch, const std::string& node) {
  control_group::Bounds bounds = BoundsOf(launch, node);
  if (bounds.memory_bytes == 0) return bounds;
  const Pages pages = PagesOf(launch);
  const bool uncounted = OffloadsToFiles(launch.job().offload());
  if (pages == Pages::kStay || (pages == Pages::kHeldUp && uncounted)) {
    bounds.memory_bytes = 0;
  } else if (pages == Pages::kHeldUp) {
    // What a rank saves is in its memory.
    bounds.memory_bytes += RanksOn(launch, node) * launch.memory_bytes_per_rank();
  }
  return bounds;
}

AttemptGroup::AttemptGroup(const KeeperOptions& options, const v1::DesiredAttempt& attempt)
    : options_(options), groups_(GroupsOf(options)), name_(AttemptFolder(attempt).unique_name()) {}

std::string AttemptGroup::folder() const {
  return groups_ == nullptr ? "" : groups_->FolderOf(name_);
}

std::string AttemptGroup::Make(const v1::LaunchSpec& launch, const std::string& attempt_folder) {
  if (groups_ == nullptr) return "";
  bounded_ = true;
  Warn(groups_->Make(name_, BoundsHere(launch, options_.node)));
  const std::string folder = groups_->FolderOf(name_);
  if (access(folder.c_str(), F_OK) != 0) return "";
  GiveCpus(launch, attempt_folder);
  return folder;
}

void AttemptGroup::BoundAdopted(const v1::LaunchSpec& launch, const std::string& attempt_folder) {
  if (groups_ == nullptr || bounded_) return;
  bounded_ = true;
  Warn(groups_->Bound(name_, BoundsHere(launch, options_.node)));
  GiveCpus(launch, attempt_folder);
}

// The file is for people.
void AttemptGroup::GiveCpus(const v1::LaunchSpec& launch, const std::string& attempt_folder) const {
  const absl::StatusOr<std::string> given = groups_->GiveCpus(name_, CpusOf(launch, options_.node));
  if (!given.ok() && options_.warn) {
    options_.warn(fmt::format("{} has no CPUs of its own, and runs on all that there are: {}",
                              name_, base::MessageOf(given.status())));
  }
  if (attempt_folder.empty()) return;
  std::error_code error;
  const std::string file = attempt_folder + "/" + kCpusFile;
  if (!given.ok() || given->empty()) {
    fs::remove(file, error);  // they are not its any more
    return;
  }
  std::ofstream out(file + ".new");
  out << *given << '\n';
  out.close();
  if (out.good()) fs::rename(file + ".new", file, error);
  if ((!out.good() || error) && options_.warn) {
    options_.warn(
        fmt::format("{} has the CPUs {}, which cannot be written to {}", name_, *given, file));
  }
}

void AttemptGroup::KeepMemoryEvents(const std::string& attempt_folder) const {
  if (groups_ == nullptr) return;
  const std::string kills = control_group::MemoryKillsIn(groups_->FolderOf(name_));
  if (!kills.empty()) std::ofstream(attempt_folder + "/" + launcher::kMemoryEvents) << kills;
}

void AttemptGroup::TellMemoryKills() {
  if (groups_ == nullptr || memory_kill_) return;
  const control_group::MemoryEvents events = control_group::MemoryEventsIn(folder());
  if (events.kills == 0) return;
  // Its daemon outlives the kill, and with it may other ranks.
  memory_kill_ =
      MemoryKillOf(events, "the kernel killed ranks of the attempt on node " + options_.node);
  if (!options_.warn) return;
  options_.warn(fmt::format(
      "{}: the kernel killed {} of its processes here, out of memory: {}", name_, events.kills,
      events.limit_hits > 0 ? "the limit of its control group, or of one within it, was reached"
                            : "this node, or a control group above the attempt's, was full"));
}

bool AttemptGroup::IsPopulated() const {
  return groups_ != nullptr && control_group::IsPopulated(groups_->FolderOf(name_));
}

bool AttemptGroup::Swept() const {
  if (groups_ == nullptr) return true;
  const std::string folder = groups_->FolderOf(name_);
  if (!control_group::IsPopulated(folder)) return true;
  control_group::KillAll(folder);
  return !control_group::IsPopulated(folder);
}

void AttemptGroup::Remove() const {
  if (groups_ != nullptr) control_group::RemoveGroup(groups_->FolderOf(name_), kRemoveLimitMs);
}

void AttemptGroup::Warn(const absl::Status& status) const {
  if (status.ok() || !options_.warn) return;
  options_.warn(fmt::format("{} is not bounded by the kernel: {}", name_, base::MessageOf(status)));
}

void RemoveUnknownGroups(const KeeperOptions& options, const std::vector<AttemptRecord>& records) {
  if (GroupsOf(options) == nullptr) return;
  std::set<std::string> known;
  for (const AttemptRecord& record : records) {
    known.insert(AttemptFolder(record.desired).unique_name());
  }
  options.control_groups->RemoveOthers(known);
}

void NameMemoryKill(const std::string& attempt_folder, const v1::LaunchSpec& launch, bool own,
                    v1::Failure& failure) {
  const control_group::MemoryEvents events =
      control_group::ReadMemoryEvents(attempt_folder + "/" + launcher::kMemoryEvents);
  if (events.kills == 0) return;
  if (own && failure.exit_code() != base::kKilledCode) {
    failure.set_evidence(failure.evidence() +
                         "\nthe kernel killed processes of the attempt too: out of memory");
    return;
  }
  failure.set_evidence(failure.headline() + "\n" + failure.evidence());
  const v1::Failure kill = MemoryKillOf(
      events, "the kernel killed the ranks of the attempt on node " + launch.allocation(0).node());
  failure.set_headline(kill.headline());
  failure.set_next_action(kill.next_action());
}

}  // namespace trireme::keeper
