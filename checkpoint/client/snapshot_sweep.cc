#include "checkpoint/client/snapshot_sweep.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/unheld_files.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/pinned_folder.h"

namespace trireme::checkpoint {
namespace {

// trireme-UID-KEY, as SnapshotFolder makes it.
bool IsFolderName(const std::string& name) {
  const std::string begin = absl::StrCat("trireme-", geteuid(), "-");
  constexpr size_t kDigits = 32;
  return name.size() == begin.size() + kDigits && name.starts_with(begin) &&
         name.find_first_not_of("0123456789abcdef", begin.size()) == std::string::npos;
}

// Calls `visit` with each folder of snapshots of this user, its path and its files, all of them
// held.
template <typename Visit>
void VisitLeft(const std::string& root, const Visit& visit) {
  base::VisitNames(root, [&](const std::string& name) {
    if (!IsFolderName(name)) return;
    const std::string path = absl::StrCat(root, "/", name);
    const auto folder = base::OpenOwnFolder(path);
    if (!folder.ok()) return;
    if (auto held = HeldFiles::TakeAll(*folder)) visit(path, *held);
  }).IgnoreError();
}

uint64_t FreeBytes(const std::string& root) {
  struct statvfs about {};
  return statvfs(root.c_str(), &about) == 0 ? uint64_t{about.f_bavail} * about.f_frsize : 0;
}

}  // namespace

SnapshotSweep::Looked SnapshotSweep::Turn(Clock::time_point now,
                                          const std::function<bool()>& goes_on) {
  Looked looked;
  if (keep_.count() == 0) return looked;
  std::map<std::string, Idle> idle;
  VisitLeft(root_, [&](const std::string& path, HeldFiles& held) {
    const auto known = idle_.find(path);
    Idle own = known == idle_.end() ? Idle{now} : known->second;
    const Left left{.folder = path, .bytes = held.bytes(), .step = held.NewestStep()};
    const bool due = now - own.since >= keep_ || held.IsBegun();
    if (due && held.FreeAll(goes_on)) {
      rmdir(path.c_str());
      looked.removed.push_back(left);
      return;
    }
    if (!own.told && now - own.since >= keep_ / 2) {
      own.told = true;
      looked.late.push_back(left);
    }
    idle.emplace(path, own);
  });
  idle_ = std::move(idle);
  return looked;
}

std::vector<SnapshotSweep::Left> MakeRoom(const RoomOptions& options, uint64_t wanted_bytes) {
  std::vector<SnapshotSweep::Left> removed;
  if (FreeBytes(options.root) >= wanted_bytes) return removed;
  const auto newest = std::chrono::system_clock::now() - options.idle;
  std::multimap<std::chrono::system_clock::time_point, std::string> oldest_first;
  VisitLeft(options.root, [&](const std::string& path, const HeldFiles& held) {
    if (path != options.except && held.written() <= newest) {
      oldest_first.emplace(held.written(), path);
    }
  });
  for (const auto& [written, path] : oldest_first) {
    if (FreeBytes(options.root) >= wanted_bytes) break;
    const auto folder = base::OpenOwnFolder(path);
    if (!folder.ok()) continue;
    auto held = HeldFiles::TakeAll(*folder);
    // Somebody has taken it up meanwhile.
    if (!held || held->written() != written) continue;
    SnapshotSweep::Left left{.folder = path, .bytes = held->bytes(), .step = held->NewestStep()};
    held->FreeAll([] { return true; });
    rmdir(path.c_str());
    removed.push_back(std::move(left));
  }
  return removed;
}

}  // namespace trireme::checkpoint
