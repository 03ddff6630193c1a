// The lock is flock's on the file `.lock`: the kernel releases it with the last descriptor, so a
// killed run leaves nothing that holds the next one up. The file is written in place, since a
// rename would leave the lock on a file without a name.
#include "checkpoint/client/writer_claim.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "checkpoint/client/disk.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkpoint {
namespace {

using base::Text;

constexpr size_t kEpochDigits = 16;
// Each older attempt makes one more necessary at most.
constexpr int kMostRounds = 100;
constexpr int kMostDamaged = 1000;  // of one step; nobody keeps so many

constexpr std::string_view kRemovedEnd = ".removed";

std::string LockPath(const std::string& root) { return root + "/.lock"; }

// kNone for an empty file, as older programs and crashes leave it, and for what is no epoch.
Epoch ParseEpoch(const std::string& text) {
  if (text.size() != kEpochDigits + 1 ||
      text.find_first_not_of("0123456789abcdef") != kEpochDigits || text.back() != '\n') {
    return Epoch::kNone;
  }
  return Epoch{std::stoull(text, nullptr, 16)};
}

absl::StatusOr<std::string> ReadLock(int fd, const std::string& path) {
  std::string text(kEpochDigits + 1, '\0');
  ssize_t got = 0;
  while ((got = pread(fd, text.data(), text.size(), 0)) < 0 && errno == EINTR) {
  }
  if (got < 0) return DiskError(path, "cannot be read", errno);
  text.resize(static_cast<size_t>(got));
  return text;
}

// Of the step folders in `root` above `step`, newest first.
absl::StatusOr<std::vector<uint64_t>> StepsAbove(const std::string& root, uint64_t step) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, base::FolderNames(root));
  std::vector<uint64_t> steps;
  for (const std::string& name : names) {
    uint64_t there = 0;
    if (ParseStepFolderName(name, &there) && there > step) steps.push_back(there);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

// Of a partial or removed folder; kNone: of no claim. Nothing: `name` is of neither.
std::optional<Epoch> EpochOfHidden(std::string_view name) {
  uint64_t step = 0;
  const bool removed = name.starts_with(".") && name.ends_with(kRemovedEnd);
  if (!removed && !ParsePartialFolderName(name, &step)) return std::nullopt;
  name = name.substr(0, name.rfind('.'));
  return ParseEpoch(Text(name.substr(name.rfind('.') + 1), '\n'));
}

uint64_t CountOf(Epoch epoch) { return static_cast<uint64_t>(epoch) >> 32; }

bool IsFull(int error) { return error == ENOSPC || error == EDQUOT; }

// `folder`, on a disk without room for one more. What epochs before this one have left there goes
// first: it becomes `folder` by one rename, which takes it away from them as any other does, is on
// the disk as that, and then removed. Newer ones have nothing that is taken for older.
absl::Status MakeOfLeftovers(const std::string& folder, const std::string& root, Epoch epoch) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, base::FolderNames(root));
  std::sort(names.begin(), names.end());
  int error = ENOSPC;
  for (const std::string& name : names) {
    const std::optional<Epoch> of = EpochOfHidden(name);
    if (!of || CountOf(*of) >= CountOf(epoch)) continue;
    if (rename((root + "/" + name).c_str(), folder.c_str()) != 0) continue;
    RETURN_IF_ERROR(CheckEpoch(root, epoch));
    RETURN_IF_ERROR(SyncFolder(root));
    (void)RemoveAll(folder);
    if (mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST) return absl::OkStatus();
    error = errno;
    if (!IsFull(error)) break;
  }
  return DiskError(folder, "cannot be made", error);
}

// A folder of `epoch` that is there before the look at `.lock`: newer epochs take it away, and with
// it all that goes into it or by way of it.
absl::Status MakeBeforeTheLook(const std::string& folder, const std::string& root, Epoch epoch) {
  // It may be there already, with what somebody holds open.
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    if (!IsFull(errno)) return DiskError(folder, "cannot be made", errno);
    RETURN_IF_ERROR(MakeOfLeftovers(folder, root, epoch));
  }
  absl::Status newest = CheckEpoch(root, epoch);
  if (!newest.ok()) rmdir(folder.c_str());
  return newest;
}

// False where a name was not there any more, or the folder that takes it: an attempt that is still
// in its own beginning may have taken that away before this one took his. Errors of names go to
// `all`.
absl::StatusOr<bool> TakeAwayOnce(const std::string& root, Epoch epoch,
                                  const std::function<bool(const std::string& name)>& is_due,
                                  absl::Status& all) {
  const std::string removed = RemovedFolder(root, epoch);
  // Before the names are read, too: what this machine remembers of the folder's names, as NFS does,
  // is void with its own change.
  RETURN_IF_ERROR(MakeBeforeTheLook(removed, root, epoch));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, base::FolderNames(root));
  bool complete = true;
  for (const std::string& name : names) {
    const std::string from = root + "/" + name, to = removed + "/" + name;
    if (from == removed || !is_due(name)) continue;
    if (rename(from.c_str(), to.c_str()) == 0) continue;
    const int error = errno;
    RETURN_IF_ERROR(CheckEpoch(root, epoch));
    if (error == ENOENT) {
      complete = false;
    } else {
      all.Update(DiskError(from, "cannot be taken away", error));
    }
  }
  return complete;
}

}  // namespace

absl::StatusOr<WriterClaim> WriterClaim::Take(const std::string& root, base::Links links,
                                              const ClaimWait& wait) {
  RETURN_IF_ERROR(MakeFolders(root));
  RETURN_IF_ERROR(base::SyncWayTo(root));
  const auto end = std::chrono::steady_clock::now() + wait.longest;
  for (;;) {
    absl::StatusOr<WriterClaim> claim = TakeNow(root, links);
    const bool held = absl::IsAborted(claim.status());
    if (!held || std::chrono::steady_clock::now() >= end) return claim;
    if (wait.go_on && !wait.go_on(claim.status())) return claim;
    std::this_thread::sleep_for(wait.pause);
  }
}

absl::StatusOr<WriterClaim> WriterClaim::TakeNow(const std::string& root, base::Links links) {
  const std::string path = LockPath(root);
  const int no_link = links == base::Links::kFollow ? 0 : O_NOFOLLOW;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | no_link | O_CLOEXEC, 0644);
  if (fd < 0) return DiskError(path, "cannot be created", errno);
  WriterClaim claim(root, links, fd);
  // A file system without locks cannot say who writes; the run goes on as it would without them.
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::AbortedError(
        Text(root, ": another run writes its checkpoints here; wait for it, or give this one a ",
             "folder of its own by checkpoint.directory"));
  }
  RETURN_IF_ERROR(claim.BeginEpoch());
  return claim;
}

bool IsClaimed(const std::string& root) {
  const int fd = open(LockPath(root).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  // Whoever claims the folder meanwhile looks again after this moment (ClaimWait).
  const bool claimed = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return claimed;
}

// The upper half counts, the lower is drawn: where there are no locks, two may count alike.
absl::Status WriterClaim::BeginEpoch() {
  const std::string path = LockPath(root_);
  ASSIGN_OR_RETURN(const std::string before, ReadLock(fd_, path));
  // Of what lies hidden too: `.lock` may have been lost, or copied from elsewhere.
  ASSIGN_OR_RETURN(const std::vector<std::string> names, base::FolderNames(root_));
  uint64_t count = CountOf(ParseEpoch(before));
  for (const std::string& name : names) {
    count = std::max(count, CountOf(EpochOfHidden(name).value_or(Epoch::kNone)));
  }
  ++count;
  std::random_device draw;
  const Epoch epoch{count << 32 | static_cast<uint32_t>(draw())};
  const std::string text = EpochText(epoch) + "\n";
  const ssize_t written = pwrite(fd_, text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size())) {
    return DiskError(path, "cannot be written", written < 0 ? errno : ENOSPC);
  }
  if (ftruncate(fd_, static_cast<off_t>(text.size())) != 0 || fsync(fd_) != 0) {
    return DiskError(path, "cannot be flushed", errno);
  }
  epoch_ = epoch;
  RETURN_IF_ERROR(SyncFolder(root_));
  RETURN_IF_ERROR(TakeHidden());
  // What somebody still holds open may be left; it is hidden, and the next one tries again.
  (void)RemoveAll(RemovedFolder(root_, epoch_));
  return absl::OkStatus();
}

// Whoever looked at `.lock` before this epoch was in it had made the folder that he renames from,
// or into: it is there now, and of two renames of it one finds nothing.
absl::Status WriterClaim::TakeHidden() const {
  return TakeAway(root_, epoch_,
                  [](const std::string& name) { return EpochOfHidden(name).has_value(); });
}

absl::Status WriterClaim::EmptyHidden() const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, base::FolderNames(root_));
  const bool any = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return EpochOfHidden(name).has_value();
  });
  if (!any) return absl::OkStatus();
  RETURN_IF_ERROR(TakeHidden());
  return RemoveAll(RemovedFolder(root_, epoch_));
}

absl::StatusOr<std::vector<SetAside>> WriterClaim::BeginAfter(uint64_t step,
                                                              std::span<const Skipped> judged) {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> steps, StepsAbove(root_, step));
  std::vector<std::pair<uint64_t, absl::Status>> damaged;
  for (const uint64_t later : steps) {
    const std::string folder = root_ + "/" + StepFolderName(later);
    const auto known = std::find_if(judged.begin(), judged.end(),
                                    [&](const Skipped& each) { return each.folder == folder; });
    const absl::Status status =
        known != judged.end() ? known->reason : Open(folder, links_).status();
    if (status.ok()) {
      return absl::FailedPreconditionError(
          Text(root_, ": holds a checkpoint of step ", later, ", but this run begins ", "at step ",
               step, " and would overwrite and remove such. Continue from it with --resume ",
               "auto, or give this run a folder of its own (a new run folder, or ",
               "checkpoint.directory)"));
    }
    if (!IsDamage(status)) return status;
    damaged.emplace_back(later, status);
  }
  std::vector<SetAside> aside;
  for (auto& [later, reason] : damaged) {
    ASSIGN_OR_RETURN(std::string folder, SetAsideDamaged(root_, later, epoch_));
    aside.push_back({std::move(folder), std::move(reason)});
  }
  return aside;
}

absl::StatusOr<std::vector<std::string>> FoldersAfter(const std::string& root, uint64_t step) {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> steps, StepsAbove(root, step));
  std::vector<std::string> folders;
  for (const uint64_t later : steps) folders.push_back(root + "/" + StepFolderName(later));
  return folders;
}

WriterClaim::WriterClaim(WriterClaim&& other) noexcept
    : root_(std::move(other.root_)),
      links_(other.links_),
      fd_(std::exchange(other.fd_, -1)),
      epoch_(other.epoch_) {}

WriterClaim& WriterClaim::operator=(WriterClaim&& other) noexcept {
  std::swap(root_, other.root_);
  std::swap(links_, other.links_);
  std::swap(fd_, other.fd_);
  std::swap(epoch_, other.epoch_);
  return *this;
}

WriterClaim::~WriterClaim() {
  if (fd_ >= 0) close(fd_);
}

absl::Status CheckEpoch(const std::string& root, Epoch epoch) {
  if (epoch == Epoch::kNone) return absl::OkStatus();
  const std::string path = LockPath(root);
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return DiskError(path, "cannot be opened", errno);
  const absl::StatusOr<std::string> text = ReadLock(fd, path);
  close(fd);
  RETURN_IF_ERROR(text.status());
  if (ParseEpoch(*text) == epoch) return absl::OkStatus();
  return absl::FailedPreconditionError(
      Text(root, ": a newer attempt has taken over this folder; this one leaves it as it is"));
}

std::string RemovedFolder(const std::string& root, Epoch epoch) {
  return Text(root, "/.", EpochText(epoch), kRemovedEnd);
}

absl::Status TakeAway(const std::string& root, Epoch epoch,
                      const std::function<bool(const std::string& name)>& is_due) {
  (void)RemoveAll(RemovedFolder(root, epoch));
  absl::Status all;
  for (int round = 1;; ++round) {
    all = absl::OkStatus();
    ASSIGN_OR_RETURN(const bool complete, TakeAwayOnce(root, epoch, is_due, all));
    if (complete) break;
    if (round == kMostRounds) {
      return absl::UnavailableError(
          Text(root, ": others keep moving what lies here; end them, and start again"));
    }
  }
  all.Update(SyncFolder(root));
  return all;
}

absl::StatusOr<std::string> SetAsideDamaged(const std::string& root, uint64_t step, Epoch epoch) {
  const std::string folder = root + "/" + StepFolderName(step);
  // Within one folder, so that no loss of power keeps half of the renaming.
  const std::string removed = RemovedFolder(root, epoch), way = removed + "/../";
  for (int number = 1; number <= kMostDamaged; ++number) {
    const std::string name = DamagedFolderName(step, number);
    if (Exists(root + "/" + name)) continue;
    RETURN_IF_ERROR(MakeBeforeTheLook(removed, root, epoch));
    if (rename((way + StepFolderName(step)).c_str(), (way + name).c_str()) != 0) {
      const int error = errno;
      RETURN_IF_ERROR(CheckEpoch(root, epoch));
      return DiskError(folder, "cannot be set aside", error);
    }
    rmdir(removed.c_str());
    RETURN_IF_ERROR(SyncFolder(root));
    return root + "/" + name;
  }
  return absl::FailedPreconditionError(
      Text(folder, ": ", kMostDamaged, " damaged ones of this step lie there; remove some"));
}

}  // namespace trireme::checkpoint
