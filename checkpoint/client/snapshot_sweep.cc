#include "checkpoint/client/snapshot_sweep.h"

#include <sys/stat.h>
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

}  // namespace

std::vector<SnapshotSweep::Removed> SnapshotSweep::Turn(Clock::time_point now) {
  std::vector<Removed> removed;
  if (keep_.count() == 0) return removed;
  std::map<std::string, Clock::time_point> idle;
  base::VisitNames(root_, [&](const std::string& name) {
    if (!IsFolderName(name)) return;
    const std::string path = absl::StrCat(root_, "/", name);
    const auto folder = base::OpenOwnFolder(path);
    if (!folder.ok() || !VisitUnheld(*folder, [](const std::string&, const struct stat&) {}))
      return;
    const auto known = idle_since_.find(path);
    const Clock::time_point since = known == idle_since_.end() ? now : known->second;
    if (now - since < keep_) {
      idle.emplace(path, since);
      return;
    }
    Removed gone{.folder = path};
    VisitUnheld(*folder, [&](const std::string& file, const struct stat& about) {
      if (unlink(file.c_str()) == 0) gone.bytes += static_cast<uint64_t>(about.st_size);
    });
    rmdir(path.c_str());
    removed.push_back(std::move(gone));
  }).IgnoreError();
  idle_since_ = std::move(idle);
  return removed;
}

}  // namespace trireme::checkpoint
