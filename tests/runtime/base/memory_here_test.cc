// Limits of control groups, over a made-up /proc and /sys/fs/cgroup.
#include "runtime/base/memory_here.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace trireme::base {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class FakeRoot {
 public:
  FakeRoot() {
    char pattern[] = "/tmp/trireme_memory_XXXXXX";
    path_ = mkdtemp(pattern);
    Write("/proc/meminfo",
          "MemTotal:        8388608 kB\nMemFree:  1 kB\nMemAvailable:    4194304 kB\n");
  }
  ~FakeRoot() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(path_ + name).parent_path());
    std::ofstream(path_ + name) << text;
  }
  void Group2(const std::string& folder, const std::string& max, uint64_t current,
              uint64_t cached = 0) {
    const std::string at = "/sys/fs/cgroup" + folder;
    Write(at + "/memory.max", max + "\n");
    Write(at + "/memory.current", std::to_string(current) + "\n");
    Write(at + "/memory.stat", "anon 5\nfile 7\ninactive_file " + std::to_string(cached) + "\n");
  }
  MemoryHere Look() const { return LookAtMemory(path_); }

 private:
  std::string path_;
};

constexpr const char* kMount2 =
    "22 1 0:21 / /proc rw - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

std::string Bytes(uint64_t mib) { return std::to_string(mib * kMiB); }

TEST_CASE("without groups the machine's memory counts") {
  FakeRoot root;
  const MemoryHere here = root.Look();
  CHECK(here.total_bytes == 8192 * kMiB);
  CHECK(here.available_bytes == 4096 * kMiB);
  CHECK(here.limit.file.empty());
  CHECK(here.least_available_bytes() == 4096 * kMiB);
  CHECK(here.least_total_bytes() == 8192 * kMiB);
}

TEST_CASE("the tightest of a group and those above it counts, by what it leaves") {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/system.slice/job/rank\n");
  root.Write("/proc/self/mountinfo", kMount2);
  root.Group2("/system.slice/job/rank", "max", 10 * kMiB);
  root.Group2("/system.slice/job", Bytes(1000), 100 * kMiB);
  root.Group2("/system.slice", Bytes(2000), 1500 * kMiB);  // 500 left: less than the smaller limit
  root.Group2("/other", Bytes(1), 0);
  const MemoryHere here = root.Look();
  CHECK(here.limit.file == "/sys/fs/cgroup/system.slice/memory.max");
  CHECK(here.limit.limit_bytes == 2000 * kMiB);
  CHECK(here.limit.available_bytes == 500 * kMiB);
  CHECK(here.least_available_bytes() == 500 * kMiB);
  CHECK(here.least_total_bytes() == 2000 * kMiB);
}

TEST_CASE("pages that cache files can be had, and a group beyond its limit has nothing") {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/a\n");
  root.Write("/proc/self/mountinfo", kMount2);
  root.Group2("/a", Bytes(1000), 900 * kMiB, 700 * kMiB);
  CHECK(root.Look().limit.available_bytes == 800 * kMiB);
  root.Group2("/a", Bytes(1000), 1200 * kMiB, 100 * kMiB);
  CHECK(root.Look().limit.available_bytes == 0);
  CHECK(root.Look().limit.file == "/sys/fs/cgroup/a/memory.max");
  CHECK(root.Look().least_available_bytes() == 0);
}

TEST_CASE("max everywhere, and a limit above the machine's memory, limit nothing") {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/a/b\n");
  root.Write("/proc/self/mountinfo", kMount2);
  root.Group2("/a/b", "max", 10);
  root.Group2("/a", "max", 10);
  CHECK(root.Look().limit.file.empty());
  root.Group2("/a", Bytes(100000), 10);
  CHECK(root.Look().least_available_bytes() == 4096 * kMiB);
}

TEST_CASE("version 1 has names, a mount and a word for none of its own") {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/slurm/job_7/step_0\n0::/\n");
  root.Write("/proc/self/mountinfo",
             "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
             "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
             "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  const std::string base = "/sys/fs/cgroup/memory";
  const auto group = [&](const std::string& folder, const std::string& limit, uint64_t usage) {
    root.Write(base + folder + "/memory.limit_in_bytes", limit + "\n");
    root.Write(base + folder + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
    root.Write(base + folder + "/memory.stat", "inactive_file 1\ntotal_inactive_file 2097152\n");
  };
  group("", "9223372036854771712", 5000 * kMiB);
  group("/slurm", "9223372036854771712", 5000 * kMiB);
  group("/slurm/job_7", Bytes(600), 102 * kMiB);
  group("/slurm/job_7/step_0", Bytes(900), 102 * kMiB);
  const MemoryHere here = root.Look();
  CHECK(here.limit.file == base + "/slurm/job_7/memory.limit_in_bytes");
  CHECK(here.limit.available_bytes == 500 * kMiB);
}

TEST_CASE("a container sees its group as the mount, by whichever name") {
  FakeRoot root;
  root.Group2("", Bytes(300), 100 * kMiB);
  // Without a namespace of groups: the whole name, of which the mount is the beginning.
  root.Write("/proc/self/cgroup", "0::/docker/abc\n");
  root.Write("/proc/self/mountinfo",
             "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  CHECK(root.Look().limit.available_bytes == 200 * kMiB);
  // A name that only begins alike, and one above the namespace.
  for (const char* name : {"0::/docker/abcdef\n", "0::/../other\n", "0::/\n"}) {
    root.Write("/proc/self/cgroup", name);
    CHECK(root.Look().limit.available_bytes == 200 * kMiB);
  }
  root.Group2("/inner", Bytes(150), 0);
  root.Write("/proc/self/cgroup", "0::/docker/abc/inner\n");
  CHECK(root.Look().limit.available_bytes == 150 * kMiB);
}

TEST_CASE("files that are not there or say nothing limit nothing") {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "nonsense\n0::/gone\n:\n");
  root.Write("/proc/self/mountinfo", std::string("short\n36 35 - cgroup2\n") + kMount2);
  CHECK(root.Look().limit.file.empty());
  root.Write("/sys/fs/cgroup/gone/memory.max", "12 apples? no: 12\n");
  CHECK(root.Look().limit.limit_bytes == 12);
  root.Write("/sys/fs/cgroup/gone/memory.max", "twelve\n");
  CHECK(root.Look().limit.file.empty());
}

TEST_CASE("this machine says what it has") {
  const MemoryHere here = LookAtMemory();
  CHECK(here.total_bytes > kMiB);
  CHECK(here.available_bytes > kMiB);
  CHECK(here.available_bytes <= here.total_bytes);
}

}  // namespace
}  // namespace trireme::base
