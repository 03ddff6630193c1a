#include "checkpoint/client/snapshot_sweep.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
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

// Calls `work` with each file that nobody holds, held meanwhile; false: somebody holds one.
bool WithUnheld(const base::PinnedFolder& folder,
                const std::function<void(const std::string& path, const struct stat&)>& work) {
  bool all = true;
  base::VisitNames(folder.PathOf("."), [&](const std::string& name) {
    const std::string path = folder.PathOf(name);
    const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    struct stat about {};
    const bool is_file = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    if (is_file && flock(fd, LOCK_EX | LOCK_NB) != 0)
      all = false;
    else if (is_file)
      work(path, about);
    close(fd);
  }).IgnoreError();
  return all;
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
    if (!folder.ok() || !WithUnheld(*folder, [](const std::string&, const struct stat&) {})) return;
    const auto known = idle_since_.find(path);
    const Clock::time_point since = known == idle_since_.end() ? now : known->second;
    if (now - since < keep_) {
      idle.emplace(path, since);
      return;
    }
    Removed gone{.folder = path};
    WithUnheld(*folder, [&](const std::string& file, const struct stat& about) {
      if (unlink(file.c_str()) == 0) gone.bytes += static_cast<uint64_t>(about.st_size);
    });
    rmdir(path.c_str());
    removed.push_back(std::move(gone));
  }).IgnoreError();
  idle_since_ = std::move(idle);
  return removed;
}

}  // namespace trireme::checkpoint
