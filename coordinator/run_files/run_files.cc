// One folder at a time by openat with O_NOFOLLOW: a name has at most one folder in front, so no
// link is ever followed below the run folder; O_NONBLOCK, so that a FIFO holds nobody up.
#include "coordinator/run_files/run_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace trireme::coordinator {
namespace {

constexpr int kMostNames = 10000;  // of a folder, looked at
constexpr size_t kLongestName = 255;

// `name` begins with `prefix` and ends with `suffix`; `exact`: there is nothing in between.
struct Pattern {
  std::string_view folder;  // "": the run folder itself
  std::string_view prefix;
  std::string_view suffix;
  bool exact = false;
};

constexpr Pattern kForPeople[] = {
    {"", "metrics.jsonl", "", true},   {"", "trace.json", "", true},
    {"", "trace-", ".json", false},    {"", "report.html", "", true},
    {"", "report.json", "", true},     {"", "sample.txt", "", true},
    {"", "job.yaml", "", true},        {"", "plan.pb", "", true},
    {"", "", ".svg", false},           {"tensorboard", "events.out.tfevents.", "", false},
    {"timeline", "", ".steps", false},
};
constexpr std::string_view kFolders[] = {"", "tensorboard", "timeline"};

bool Matches(const Pattern& pattern, std::string_view folder, std::string_view name) {
  if (folder != pattern.folder) return false;
  if (pattern.exact) return name == pattern.prefix;
  return name.size() > pattern.prefix.size() + pattern.suffix.size() &&
         name.starts_with(pattern.prefix) && name.ends_with(pattern.suffix);
}

bool IsPlainName(std::string_view name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 127 && c != '/'; });
  return !name.empty() && name.size() <= kLongestName && name[0] != '.' && printable;
}

bool IsForPeopleIn(std::string_view folder, std::string_view name) {
  return IsPlainName(name) &&
         std::any_of(std::begin(kForPeople), std::end(kForPeople),
                     [&](const Pattern& pattern) { return Matches(pattern, folder, name); });
}

struct Parts {
  std::string folder;
  std::string name;
};

Parts Split(std::string_view path) {
  const size_t slash = path.find('/');
  if (slash == std::string_view::npos) return {"", std::string(path)};
  return {std::string(path.substr(0, slash)), std::string(path.substr(slash + 1))};
}

// The run folder, or a folder in it; -1: there is none.
int OpenFolder(const std::string& run_folder, const std::string& folder) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const int root = open(run_folder.c_str(), kFlags);
  if (root < 0 || folder.empty()) return root;
  const int inner = openat(root, folder.c_str(), kFlags);
  close(root);
  return inner;
}

void ListFolder(const std::string& run_folder, const std::string& folder,
                std::vector<v1::FileInfo>& files) {
  const int fd = OpenFolder(run_folder, folder);
  if (fd < 0) return;
  DIR* const stream = fdopendir(fd);
  if (stream == nullptr) {
    close(fd);
    return;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(stream, closedir);
  for (int looked_at = 0; looked_at < kMostNames; ++looked_at) {
    const dirent* entry = readdir(stream);
    if (entry == nullptr) return;
    struct stat about {};
    if (!IsForPeopleIn(folder, entry->d_name)) continue;
    if (fstatat(fd, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(about.st_mode)) continue;
    v1::FileInfo& file = files.emplace_back();
    file.set_path(folder.empty() ? entry->d_name : fmt::format("{}/{}", folder, entry->d_name));
    file.set_bytes(static_cast<uint64_t>(about.st_size));
    file.set_written_unix_ns(about.st_mtim.tv_sec * int64_t{1000000000} + about.st_mtim.tv_nsec);
  }
}

}  // namespace

bool IsForPeople(std::string_view path) {
  const Parts parts = Split(path);
  return IsForPeopleIn(parts.folder, parts.name);
}

std::vector<v1::FileInfo> ListRunFiles(const std::string& run_folder) {
  std::vector<v1::FileInfo> files;
  for (const std::string_view folder : kFolders) {
    ListFolder(run_folder, std::string(folder), files);
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.path() < b.path(); });
  return files;
}

absl::StatusOr<int> OpenRunFile(const std::string& run_folder, std::string_view path) {
  const absl::Status none = absl::NotFoundError(
      "path: the job has no such file for people; ListFiles (trireme files JOB) names those that "
      "there are");
  if (!IsForPeople(path)) return none;
  const Parts parts = Split(path);
  const int folder = OpenFolder(run_folder, parts.folder);
  if (folder < 0) return none;
  const int fd = openat(folder, parts.name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  const int error = errno;
  close(folder);
  struct stat about {};
  if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) return fd;
  if (fd >= 0) close(fd);
  if (fd < 0 && error != ENOENT && error != ELOOP && error != ENXIO) {
    return absl::ErrnoToStatus(error, fmt::format("cannot open {}", path));
  }
  return none;
}

}  // namespace trireme::coordinator
