// A group of this machine's cgroup v2 for a test, without controllers: what is in it is killed and
// it is removed at the end. Its root is a made-up /proc before the real groups, for AttemptGroups.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "coordinator/control_group/delegation.h"
#include "coordinator/control_group/group_files.h"
#include "tests/temporary_folder.h"

namespace trireme::control_group {

class RealGroups {
 public:
  // Null: there is none here that may be written to.
  static std::unique_ptr<RealGroups> Make() {
    const Delegation ours = FindDelegation();
    if (ours.kind != Kind::kDelegated) return nullptr;
    std::unique_ptr<RealGroups> groups(new RealGroups(ours.folder));
    std::error_code error;
    std::filesystem::create_directory(groups->folder_, error);
    if (error || access((groups->folder_ + "/cgroup.kill").c_str(), W_OK) != 0) return nullptr;
    return groups;
  }
  static constexpr char kNone[] = "not here: a cgroup v2 that may be written to, as root's";

  ~RealGroups() {
    Join(ProcsFile(base_).c_str());  // this process may be in it
    RemoveGroup(folder_, 5000);
  }
  RealGroups(const RealGroups&) = delete;
  RealGroups& operator=(const RealGroups&) = delete;

  const std::string& root() const { return root_.path(); }
  const std::string& folder() const { return folder_; }

 private:
  explicit RealGroups(const std::string& base)
      : base_(base), folder_(base + "/trireme-test-" + std::to_string(getpid())) {
    namespace fs = std::filesystem;
    fs::create_directories(root_ / "proc/self");
    fs::create_directories(root_ / "sys/fs");
    fs::create_directory_symlink(folder_, root_ / "sys/fs/cgroup");
    std::ofstream(root_ / "proc/self/cgroup") << "0::/\n";
    std::ofstream(root_ / "proc/self/mountinfo")
        << "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 c rw\n";
  }

  const std::string base_, folder_;
  const tests::TemporaryFolder root_;
};

}  // namespace trireme::control_group
