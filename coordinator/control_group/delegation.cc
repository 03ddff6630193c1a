// cgroups(7), systemd's "Control Group APIs and Delegation".
#include "coordinator/control_group/delegation.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace trireme::control_group {
namespace {

// Where systemd runs the commands of a delegated unit beside its main process.
constexpr char kControlLeaf[] = ".control";

// 36 35 0:38 /group /mount/point rw - cgroup2 cgroup2 rw
struct Mount {
  std::string group;
  std::string point;
};

std::optional<Mount> MountIn(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> fields;
  for (std::string field; in >> field;) fields.push_back(field);
  const auto dash = std::find(fields.begin(), fields.end(), "-");
  if (fields.size() < 6 || fields.end() - dash < 2 || dash[1] != "cgroup2") return std::nullopt;
  return Mount{fields[3], fields[4]};
}

bool Contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::vector<std::string> WordsOf(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// "/a/b"; nullopt: it is in none.
std::optional<std::string> GroupOf(const std::string& root, const std::string& process) {
  std::ifstream in(root + "/proc/" + process + "/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return std::nullopt;
}

// The folder of the group without a '/' at the end; empty: it is not seen.
std::string FolderOf(const std::string& root, const std::string& process) {
  const std::optional<std::string> group = GroupOf(root, process);
  if (!group || group->find("/..") != std::string::npos) return "";
  std::ifstream in(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    const std::optional<Mount> mount = MountIn(line);
    if (!mount) continue;
    const std::string top = mount->group == "/" ? "" : mount->group;
    const bool below =
        group->starts_with(top) && (group->size() == top.size() || (*group)[top.size()] == '/');
    if (!below) continue;
    std::string folder = mount->point + group->substr(top.size());
    if (folder.back() == '/') folder.pop_back();
    return folder;
  }
  return "";
}

bool SaysDelegated(const std::string& folder) {
  for (const char* name : {"user.delegate", "trusted.delegate"}) {
    char value = 0;
    if (getxattr(folder.c_str(), name, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

bool IsOurs(const std::string& root, const std::string& folder) {
  const std::string path = root + folder;
  for (const char* name : {"", "/cgroup.procs", "/cgroup.subtree_control"}) {
    if (faccessat(AT_FDCWD, (path + name).c_str(), W_OK, AT_EACCESS) != 0) return false;
  }
  // Root may write everywhere, and a user below his own manager; what is systemd's, and what it
  // does not name, is to be let be all the same.
  const bool systemd = access((root + "/run/systemd/system").c_str(), F_OK) == 0;
  return !systemd || SaysDelegated(path);
}

}  // namespace

bool Delegation::Has(const std::string& controller) const {
  return Contains(controllers, controller);
}

bool Delegation::HasEnabled(const std::string& controller) const {
  return Contains(enabled, controller);
}

Delegation FindDelegation(const std::string& root, const std::string& process) {
  Delegation found;
  found.folder = FolderOf(root, process);
  if (found.folder.empty()) return found;
  found.kind = Kind::kNotDelegated;
  const size_t slash = found.folder.rfind('/');
  const std::string name = found.folder.substr(slash + 1), parent = found.folder.substr(0, slash);
  const bool other = process != "self";
  // An agent of before has moved us there, or systemd.
  const bool leaf = name == kAgentLeaf || name == kControlLeaf;
  if (leaf && (other || IsOurs(root, parent))) found.folder = parent;
  if (other ? leaf : IsOurs(root, found.folder)) found.kind = Kind::kDelegated;
  found.controllers = WordsOf(root + found.folder + "/cgroup.controllers");
  found.enabled = WordsOf(root + found.folder + "/cgroup.subtree_control");
  const auto has = [&](const char* file) {
    return access((root + found.folder + file).c_str(), F_OK) == 0;
  };
  found.kills = has("/cgroup.kill") || !has("/cgroup.events");  // the root of all has neither
  return found;
}

}  // namespace trireme::control_group
