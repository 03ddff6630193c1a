// A made-up /proc and /sys/fs/cgroup: this process is in the group /unit, whose files are there.
#pragma once

#include <sys/xattr.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace trireme::control_group {

inline constexpr char kUnit[] = "/sys/fs/cgroup/unit";

class FakeGroups {
 public:
  FakeGroups() {
    Write("/proc/self/cgroup", "0::/unit\n");
    Write("/proc/self/mountinfo",
          "22 1 0:21 / /proc rw - proc proc rw\n"
          "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n");
    Group("");
    Group("/trireme-agent");
    Write(Unit("/cgroup.controllers"), "cpuset cpu io memory pids\n");
    Cpus("0-7");
  }
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path() + name).parent_path());
    std::ofstream(path() + name) << text;
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(path() + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string Unit(const std::string& name) { return kUnit + name; }
  // Below the unit, with the files that the kernel makes.
  void Group(const std::string& name) {
    for (const char* file : {"procs", "subtree_control", "kill", "controllers"}) {
      Write(Unit(name + "/cgroup." + file), "");
    }
    Write(Unit(name + "/memory.max"), "max\n");
    Write(Unit(name + "/memory.oom.group"), "0\n");
    Write(Unit(name + "/pids.max"), "max\n");
    Write(Unit(name + "/cpuset.cpus"), "\n");
  }
  // Which the unit has, and this process may use.
  void Cpus(const std::string& list) {
    Write(Unit("/cpuset.cpus.effective"), list + "\n");
    Write("/proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t" + list + "\n");
  }
  // What is kept with a group; false: the file system has no attributes.
  bool Keep(const std::string& group, const std::string& cpus) const {
    return setxattr((path() + Unit(group)).c_str(), "user.trireme.cpus", cpus.data(), cpus.size(),
                    0) == 0;
  }
  const std::string& path() const { return folder_.path(); }

 private:
  const tests::TemporaryFolder folder_;
};

}  // namespace trireme::control_group
