// A made-up /proc and /sys/fs/cgroup, for whoever asks how much memory there is: a machine of 8 GiB
// of which 4 are free, and the groups that a test writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"

namespace trireme::base {

class FakeRoot {
 public:
  FakeRoot() {
    Write("/proc/meminfo",
          "MemTotal:        8388608 kB\nMemFree:  1 kB\nMemAvailable:    4194304 kB\n");
  }
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path() + name).parent_path());
    std::ofstream(path() + name) << text;
  }
  void Group2(const std::string& folder, const std::string& max, uint64_t current,
              uint64_t cached = 0) {
    const std::string at = "/sys/fs/cgroup" + folder;
    Write(at + "/memory.max", max + "\n");
    Write(at + "/memory.current", std::to_string(current) + "\n");
    Write(at + "/memory.stat", "anon 5\nfile 7\ninactive_file " + std::to_string(cached) + "\n");
  }
  const std::string& path() const { return folder_.path(); }

 private:
  const tests::TemporaryFolder folder_;
};

inline constexpr const char* kMount2 =
    "22 1 0:21 / /proc rw - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

}  // namespace trireme::base
