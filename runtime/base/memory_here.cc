// proc(5), cgroups(7): /proc/self/cgroup says the group, mountinfo where its files are and which
// group the mount begins at.
#include "runtime/base/memory_here.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::base {
namespace {

// Of the two versions.
struct Names {
  std::string_view limit;
  std::string_view usage;
  // Pages of files, which the kernel takes back, in memory.stat with the groups below. What is read
  // twice, as a checkpoint that is checked and restored, is active.
  std::string_view inactive;
  std::string_view active;
};
constexpr Names kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                          "total_active_file"};
constexpr Names kVersion2{"memory.max", "memory.current", "inactive_file", "active_file"};

// Where the groups of a version are seen.
struct Mount {
  std::string point;  // the folder
  std::string group;  // which that folder is of
  bool version_2 = false;
};

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool Contains(const std::vector<std::string>& all, std::string_view one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// "max" and what is no number: none.
std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  if (!(file >> word)) return std::nullopt;
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) return std::nullopt;
  return number;
}

// Lines "name number" and "name: number kB".
uint64_t FieldIn(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string name;
    uint64_t number = 0;
    if (fields >> name >> number && name == wanted) return number;
  }
  return 0;
}

// 36 35 98:0 /group /mount/point rw,noatime master:1 - cgroup cgroup rw,memory
std::optional<Mount> ParseMount(const std::string& line) {
  const std::vector<std::string> fields = Split(line, ' ');
  const auto dash = std::find(fields.begin(), fields.end(), "-");
  if (fields.size() < 6 || fields.end() - dash < 4) return std::nullopt;
  const bool version_2 = dash[1] == "cgroup2";
  const bool version_1 = dash[1] == "cgroup" && Contains(Split(dash[3], ','), "memory");
  if (!version_1 && !version_2) return std::nullopt;
  return Mount{fields[4], fields[3] == "/" ? "" : fields[3], version_2};
}

// The part of `group` below the mount; empty where it is not below: a container that sees another
// part of the tree than its own group has that as the mount.
std::string Below(const Mount& mount, const std::string& group) {
  const bool below = group.starts_with(mount.group) && group.find("/..") == std::string::npos &&
                     (group.size() == mount.group.size() || group[mount.group.size()] == '/');
  std::string path = below ? group.substr(mount.group.size()) : "";
  return path == "/" ? "" : path;
}

void TakeLimit(const std::string& root, const std::string& folder, const Names& names,
               std::vector<MemoryLimit>& limits) {
  const std::string file = folder + "/" + std::string(names.limit);
  const std::optional<uint64_t> limit = NumberIn(root + file);
  struct stat group;
  // Version 1 says "none" by a number that no machine has.
  if (!limit || *limit >= uint64_t{1} << 62 || stat((root + folder).c_str(), &group) != 0) return;
  // Mounted twice.
  for (const MemoryLimit& known : limits) {
    if (known.device == group.st_dev && known.inode == group.st_ino) return;
  }
  const uint64_t usage = NumberIn(root + folder + "/" + std::string(names.usage)).value_or(0);
  const std::string stat_file = root + folder + "/memory.stat";
  const uint64_t cached = FieldIn(stat_file, names.inactive) + FieldIn(stat_file, names.active);
  const uint64_t taken = usage - std::min(usage, cached);
  limits.push_back({.file = file,
                    .device = group.st_dev,
                    .inode = group.st_ino,
                    .limit_bytes = *limit,
                    .available_bytes = *limit - std::min(*limit, taken)});
}

// From the process's own group up.
std::vector<MemoryLimit> LimitsOf(const std::string& root) {
  std::vector<Mount> mounts;
  std::ifstream mountinfo(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mountinfo, line);) {
    if (const auto mount = ParseMount(line)) mounts.push_back(*mount);
  }
  std::vector<MemoryLimit> limits;
  std::ifstream cgroups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {  // 4:memory:/group, 0::/group
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && !Contains(Split(controllers, ','), "memory")) continue;
    for (const Mount& mount : mounts) {
      if (mount.version_2 != version_2) continue;
      std::string group = Below(mount, line.substr(second + 1));
      while (true) {
        TakeLimit(root, mount.point + group, version_2 ? kVersion2 : kVersion1, limits);
        if (group.empty()) break;
        group.resize(group.rfind('/'));
      }
    }
  }
  return limits;
}

// `field` of the machine, which is `of_machine`, and of all limits.
uint64_t Least(uint64_t of_machine, const std::vector<MemoryLimit>& limits,
               uint64_t MemoryLimit::*field) {
  std::optional<uint64_t> least;
  if (of_machine > 0) least = of_machine;
  for (const MemoryLimit& limit : limits) {
    least = std::min(least.value_or(UINT64_MAX), limit.*field);
  }
  return least.value_or(0);
}

}  // namespace

uint64_t MemoryHere::least_total_bytes() const {
  return Least(total_bytes, limits, &MemoryLimit::limit_bytes);
}

uint64_t MemoryHere::least_available_bytes() const {
  return Least(available_bytes, limits, &MemoryLimit::available_bytes);
}

MemoryHere LookAtMemory(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  std::vector<MemoryLimit> limits = LimitsOf(root);
  std::stable_sort(limits.begin(), limits.end(), [](const MemoryLimit& a, const MemoryLimit& b) {
    return a.available_bytes < b.available_bytes;
  });
  return {.total_bytes = FieldIn(meminfo, "MemTotal:") * 1024,
          .available_bytes = FieldIn(meminfo, "MemAvailable:") * 1024,
          .limits = std::move(limits)};
}

}  // namespace trireme::base
