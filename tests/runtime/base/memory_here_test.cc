// Limits of control groups, over a made-up /proc and /sys/fs/cgroup.
#include "runtime/base/memory_here.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/runtime/base/fake_root.h"

namespace trireme::base {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

MemoryHere LookIn(const FakeRoot& root) { return LookAtMemory(root.path()); }

MemoryLimit Tightest(const FakeRoot& root) {
  const MemoryHere here = LookIn(root);
  REQUIRE_FALSE(here.limits.empty());
  return here.limits.front();
}

std::string Bytes(uint64_t mib) { return std::to_string(mib * kMiB); }

TEST_CASE("without groups the machine's memory counts") {
  FakeRoot root;
  const MemoryHere here = LookIn(root);
  CHECK(here.total_bytes == 8192 * kMiB);
  CHECK(here.available_bytes == 4096 * kMiB);
  CHECK(here.limits.empty());
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
  const MemoryHere here = LookIn(root);
  REQUIRE(here.limits.size() == 2);
  CHECK(here.limits[0].file == "/sys/fs/cgroup/system.slice/memory.max");
  CHECK(here.limits[0].limit_bytes == 2000 * kMiB);
  CHECK(here.limits[0].available_bytes == 500 * kMiB);
  CHECK(here.least_available_bytes() == 500 * kMiB);
  // What others take may be given back; the smaller limit stays.
  CHECK(here.limits[1].file == "/sys/fs/cgroup/system.slice/job/memory.max");
  CHECK(here.limits[1].limit_bytes == 1000 * kMiB);
  CHECK(here.limits[1].available_bytes == 900 * kMiB);
  CHECK(here.least_total_bytes() == 1000 * kMiB);
}

TEST_CASE("a control group is known by its folder, not by its name") {
  const auto only = [](const FakeRoot& root) {
    const MemoryHere here = LookIn(root);
    REQUIRE(here.limits.size() == 1);
    return here.limits[0];
  };
  FakeRoot one, two;
  for (FakeRoot* root : {&one, &two}) {
    root->Write("/proc/self/cgroup", "0::/\n");
    root->Write("/proc/self/mountinfo", kMount2);
    root->Group2("", Bytes(300), 0);
  }
  // Two containers on one machine.
  CHECK(only(one).file == only(two).file);
  CHECK((only(one).device != only(two).device || only(one).inode != only(two).inode));
  // One that is mounted at two places is one, by its first name.
  const MemoryLimit before = only(one);
  std::filesystem::create_directory_symlink("fs/cgroup", one.path() + "/sys/again");
  one.Write("/proc/self/mountinfo",
            std::string(kMount2) + "32 23 0:28 / /sys/again rw - cgroup2 cgroup2 rw\n");
  CHECK(only(one).file == before.file);
  CHECK(only(one).device == before.device);
  CHECK(only(one).inode == before.inode);
}

TEST_CASE("pages that cache files can be had, and a group beyond its limit has nothing") {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/a\n");
  root.Write("/proc/self/mountinfo", kMount2);
  root.Group2("/a", Bytes(1000), 900 * kMiB, 700 * kMiB);
  CHECK(Tightest(root).available_bytes == 800 * kMiB);
  // Pages of a checkpoint that was checked and then restored.
  root.Write("/sys/fs/cgroup/a/memory.stat",
             "anon 5\ninactive_file " + Bytes(300) + "\nactive_file " + Bytes(400) + "\n");
  CHECK(Tightest(root).available_bytes == 800 * kMiB);
  root.Group2("/a", Bytes(1000), 1200 * kMiB, 100 * kMiB);
  CHECK(Tightest(root).available_bytes == 0);
  CHECK(Tightest(root).file == "/sys/fs/cgroup/a/memory.max");
  CHECK(LookIn(root).least_available_bytes() == 0);
}

TEST_CASE("max everywhere, and a limit above the machine's memory, limit nothing") {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/a/b\n");
  root.Write("/proc/self/mountinfo", kMount2);
  root.Group2("/a/b", "max", 10);
  root.Group2("/a", "max", 10);
  CHECK(LookIn(root).limits.empty());
  root.Group2("/a", Bytes(100000), 10);
  CHECK(LookIn(root).least_available_bytes() == 4096 * kMiB);
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
    root.Write(base + folder + "/memory.stat",
               "inactive_file 1\nactive_file 1\ntotal_inactive_file 2097152\n"
               "total_active_file 1048576\n");
  };
  group("", "9223372036854771712", 5000 * kMiB);
  group("/slurm", "9223372036854771712", 5000 * kMiB);
  group("/slurm/job_7", Bytes(600), 103 * kMiB);
  group("/slurm/job_7/step_0", Bytes(900), 103 * kMiB);
  const MemoryHere here = LookIn(root);
  REQUIRE(here.limits.size() == 2);
  CHECK(here.limits.front().file == base + "/slurm/job_7/memory.limit_in_bytes");
  CHECK(here.limits.front().available_bytes == 500 * kMiB);
}

TEST_CASE("a container sees its group as the mount, by whichever name") {
  FakeRoot root;
  root.Group2("", Bytes(300), 100 * kMiB);
  // Without a namespace of groups: the whole name, of which the mount is the beginning.
  root.Write("/proc/self/cgroup", "0::/docker/abc\n");
  root.Write("/proc/self/mountinfo",
             "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  CHECK(Tightest(root).available_bytes == 200 * kMiB);
  // A name that only begins alike, and one above the namespace.
  for (const char* name : {"0::/docker/abcdef\n", "0::/../other\n", "0::/\n"}) {
    root.Write("/proc/self/cgroup", name);
    CHECK(Tightest(root).available_bytes == 200 * kMiB);
  }
  root.Group2("/inner", Bytes(150), 0);
  root.Write("/proc/self/cgroup", "0::/docker/abc/inner\n");
  CHECK(Tightest(root).available_bytes == 150 * kMiB);
}

TEST_CASE("files that are not there or say nothing limit nothing") {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "nonsense\n0::/gone\n:\n");
  root.Write("/proc/self/mountinfo", std::string("short\n36 35 - cgroup2\n") + kMount2);
  CHECK(LookIn(root).limits.empty());
  root.Write("/sys/fs/cgroup/gone/memory.max", "12 apples? no: 12\n");
  CHECK(Tightest(root).limit_bytes == 12);
  root.Write("/sys/fs/cgroup/gone/memory.max", "twelve\n");
  CHECK(LookIn(root).limits.empty());
}

TEST_CASE("this machine says what it has") {
  const MemoryHere here = LookAtMemory();
  CHECK(here.total_bytes > kMiB);
  CHECK(here.available_bytes > kMiB);
  CHECK(here.available_bytes <= here.total_bytes);
}

}  // namespace
}  // namespace trireme::base
