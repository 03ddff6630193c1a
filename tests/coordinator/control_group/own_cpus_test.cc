// CPUs of their own for attempts: what is written into their groups, and what the next agent
// learns from them.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/control_group/attempt_groups.h"
#include "coordinator/control_group/cpus_here.h"
#include "runtime/base/status_macros.h"
#include "tests/coordinator/control_group/fake_groups.h"
#include "tests/skip.h"

namespace trireme::control_group {
namespace {

namespace fs = std::filesystem;

class CpuBench {
 public:
  std::unique_ptr<AttemptGroups> Open(const std::string& state = "/state") const {
    auto groups = AttemptGroups::Open(state, fake.path());
    REQUIRE(groups.ok());
    return *std::move(groups);
  }
  // Below the unit.
  std::string NameOf(const AttemptGroups& groups, const std::string& attempt) const {
    return groups.FolderOf(attempt).substr(fake.path().size() + std::string(kUnit).size());
  }
  // Makes the group, and says which CPUs it is given, or why none are.
  std::string Give(const AttemptGroups& groups, const std::string& attempt, size_t count) {
    if (!fs::exists(groups.FolderOf(attempt))) fake.Group(NameOf(groups, attempt));
    const auto given = groups.GiveCpus(attempt, count);
    return given.ok() ? *given : base::MessageOf(given.status());
  }
  // As an end of the unit does.
  void Lose(const AttemptGroups& groups, const std::string& attempt) {
    fake.Write(FakeGroups::Unit(NameOf(groups, attempt) + "/cpuset.cpus"), "\n");
  }
  std::string Has(const AttemptGroups& groups, const std::string& attempt) const {
    return fake.Read(groups.FolderOf(attempt).substr(fake.path().size()) + "/cpuset.cpus");
  }

  FakeGroups fake;
};

TEST_CASE("own CPUs: attempts get disjoint ones, and those of one that is gone are free") {
  CpuBench bench;
  const auto groups = bench.Open();
  CHECK(groups->shared_cpus().empty());
  CHECK(bench.Give(*groups, "trireme-1-1-a", 4) == "0-3");
  CHECK(bench.Has(*groups, "trireme-1-1-a") == "0-3");
  CHECK(bench.Give(*groups, "trireme-2-1-a", 3) == "4-6");
  CHECK(bench.Give(*groups, "trireme-3-1-a", 2) == "it is to have 2, and 1 of 8 are free");
  CHECK(bench.Has(*groups, "trireme-3-1-a") == "\n");
  CHECK(bench.Give(*groups, "trireme-1-1-a", 2) == "0-3");  // what has some keeps them
  fs::remove_all(groups->FolderOf("trireme-1-1-a"));
  CHECK(bench.Give(*groups, "trireme-3-1-a", 2) == "0-1");
}

TEST_CASE("own CPUs: nothing is written where none are asked for, or there is no group") {
  CpuBench bench;
  const auto groups = bench.Open();
  CHECK(bench.Give(*groups, "trireme-1-1-a", 0).empty());
  CHECK(bench.Has(*groups, "trireme-1-1-a") == "\n");
  CHECK(groups->GiveCpus("trireme-2-1-a", 1)->empty());
}

TEST_CASE("own CPUs: the next agent, and another one beside it, see what is taken") {
  CpuBench bench;
  CHECK(bench.Give(*bench.Open(), "trireme-1-1-a", 3) == "0-2");
  const auto next = bench.Open(), other = bench.Open("/other");
  CHECK(bench.Give(*next, "trireme-2-1-a", 2) == "3-4");
  CHECK(bench.Give(*other, "trireme-2-1-a", 2) == "5-6");
  CHECK(bench.Give(*next, "trireme-1-1-a", 3) == "0-2");
}

constexpr char kNoAttributes[] = "not here: extended attributes in /tmp";

TEST_CASE("own CPUs: who has lost its set gets the same again, whoever is given any before") {
  CpuBench bench;
  if (!bench.fake.Keep("", "")) TRIREME_SKIP(kNoAttributes);
  {
    const auto groups = bench.Open();
    CHECK(bench.Give(*groups, "trireme-1-1-a", 2) == "0-1");
    CHECK(bench.Give(*groups, "trireme-2-1-a", 3) == "2-4");
    for (const char* attempt : {"trireme-1-1-a", "trireme-2-1-a"}) bench.Lose(*groups, attempt);
  }
  const auto next = bench.Open(), other = bench.Open("/other");
  CHECK(bench.Give(*next, "trireme-3-1-a", 1) == "5");
  CHECK(bench.Give(*other, "trireme-9-1-a", 1) == "6");
  CHECK(bench.Give(*next, "trireme-2-1-a", 3) == "2-4");
  CHECK(bench.Give(*next, "trireme-4-1-a", 2) == "it is to have 2, and 1 of 8 are free");
  CHECK(bench.Give(*next, "trireme-1-1-a", 2) == "0-1");
}

TEST_CASE("own CPUs: a set that cannot be had again is let go") {
  CpuBench bench;
  if (!bench.fake.Keep("", "")) TRIREME_SKIP(kNoAttributes);
  const auto groups = bench.Open();
  const auto had = [&](const std::string& attempt, const std::string& cpus) {
    bench.fake.Group(bench.NameOf(*groups, attempt));
    CHECK(bench.fake.Keep(bench.NameOf(*groups, attempt), cpus));
    return attempt;
  };
  CHECK(bench.Give(*groups, had("trireme-1-1-a", "5-6"), 2) == "5-6");
  CHECK(bench.Give(*groups, had("trireme-2-1-a", "6-7"), 2) == "0-1");  // half of it is taken
  CHECK(bench.Give(*groups, had("trireme-3-1-a", "8-9"), 2) == "2-3");  // not there any more
  CHECK(bench.Give(*groups, had("trireme-4-1-a", "0-8x"), 1) == "4");   // no list
  // No longer than what is wanted, and there are none for it: it runs on all, and keeps none back.
  CHECK(bench.Give(*groups, had("trireme-5-1-a", "7"), 2).find("it is to have 2") == 0);
  CHECK(bench.Give(*groups, "trireme-6-1-a", 1) == "7");
}

TEST_CASE("own CPUs: cores and nodes are those that the kernel names") {
  CpuBench bench;
  for (int cpu = 0; cpu < 8; ++cpu) {  // 0 and 1 are a core, 2 and 3, ...
    const int first = cpu / 2 * 2;
    bench.fake.Write(
        "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
        std::to_string(first) + "-" + std::to_string(first + 1) + "\n");
  }
  bench.fake.Write("/sys/devices/system/node/node0/cpulist", "0-3\n");
  bench.fake.Write("/sys/devices/system/node/node1/cpulist", "4-7\n");
  bench.fake.Write("/sys/devices/system/node/online", "0-1\n");
  const auto groups = bench.Open();
  CHECK(bench.Give(*groups, "trireme-1-1-a", 1) == "0");
  CHECK(bench.Give(*groups, "trireme-2-1-a", 2) == "4,6");
  CHECK(bench.Give(*groups, "trireme-3-1-a", 1) == "2");
  CHECK(bench.Give(*groups, "trireme-4-1-a", 4) == "1,3,5,7");
}

TEST_CASE("own CPUs: attempts share them where the agent cannot say which are its") {
  CpuBench bench;
  std::string why;
  SECTION("no controller") {
    bench.fake.Write(FakeGroups::Unit("/cgroup.controllers"), "memory pids\n");
    why = "the controller cpuset is not there";
  }
  SECTION("bound by its affinity, which its ranks inherit") {
    bench.fake.Write("/proc/self/status", "Cpus_allowed_list:\t2-3\n");
    why = "the agent itself is bound to 2-3 of 0-7";
  }
  SECTION("bound, beside CPUs that are not there") {
    bench.fake.Write("/proc/self/status", "Cpus_allowed_list:\t2-3,8-127\n");
    why = "the agent itself is bound to 2-3 of 0-7";
  }
  SECTION("no affinity is seen") {
    fs::remove(bench.fake.path() + "/proc/self/status");
    why = "not to be read";
  }
  SECTION("no CPUs are seen") {
    fs::remove(bench.fake.path() + FakeGroups::Unit("/cpuset.cpus.effective"));
    why = "not to be read";
  }
  const auto groups = bench.Open();
  CHECK(groups->shared_cpus().find(why) != std::string::npos);
  CHECK(bench.fake.Read(FakeGroups::Unit("/cgroup.subtree_control")) == "+pids");
  CHECK(bench.Give(*groups, "trireme-1-1-a", 1).empty());
  CHECK(bench.Has(*groups, "trireme-1-1-a") == "\n");
}

TEST_CASE("own CPUs: an agent that nobody has bound may use more than there are") {
  CpuBench bench;
  // Sockets that are empty, threads of cores and CPUs that are off; or 2 and 5 of them.
  bench.fake.Write("/proc/self/status", "Cpus_allowed_list:\t0-127\n");
  const std::string there = GENERATE("0-7", "0-1,3-4,6-7");
  bench.fake.Write(FakeGroups::Unit("/cpuset.cpus.effective"), there + "\n");
  const auto groups = bench.Open();
  CHECK(groups->shared_cpus().empty());
  CHECK(bench.Give(*groups, "trireme-1-1-a", there == "0-7" ? 8 : 6) == there);
}

TEST_CASE("own CPUs: none where nobody wants them") {
  CpuBench bench;
  const auto groups = AttemptGroups::Open("/state", bench.fake.path(), CpuSets::kNone);
  REQUIRE(groups.ok());
  CHECK((*groups)->shared_cpus().find("no-cpuset") != std::string::npos);
  CHECK(bench.Give(**groups, "trireme-1-1-a", 1).empty());
}

TEST_CASE("own CPUs: what cannot be had is an error, and is tried again") {
  CpuBench bench;
  const std::string control = FakeGroups::Unit("/cgroup.subtree_control");
  fs::remove(bench.fake.path() + control);
  fs::create_directory(bench.fake.path() + control);  // cannot be written to
  const auto groups = bench.Open();
  CHECK(bench.Give(*groups, "trireme-1-1-a", 1).find("subtree_control") != std::string::npos);
  fs::remove(bench.fake.path() + control);
  bench.fake.Write(control, "");
  CHECK(bench.Give(*groups, "trireme-1-1-a", 1) == "0");
}

TEST_CASE("own CPUs: who waits for others that choose waits not for ever") {
  CpuBench bench;
  const auto groups = bench.Open();
  const int fd = open((bench.fake.path() + kUnit).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(flock(fd, LOCK_EX) == 0);
  CHECK(bench.Give(*groups, "trireme-1-1-a", 1).find("another agent holds") == 0);
  close(fd);
  CHECK(bench.Give(*groups, "trireme-1-1-a", 1) == "0");
}

TEST_CASE("own CPUs: a lock that cannot be taken is not laid to others") {
  CpuBench bench;
  const auto groups = bench.Open();
  bench.fake.Group(bench.NameOf(*groups, "trireme-1-1-a"));
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{0, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto given = groups->GiveCpus("trireme-1-1-a", 1);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  const std::string message = base::MessageOf(given.status());
  CHECK(message.find("cannot open " + bench.fake.path() + kUnit + ": Too many open files") == 0);
}

TEST_CASE("own CPUs: attempts that begin together get disjoint ones") {
  CpuBench bench;
  bench.fake.Cpus("0-63");
  const auto groups = bench.Open();
  std::vector<std::string> names;
  for (int i = 0; i < 16; ++i) {
    names.push_back("trireme-" + std::to_string(i) + "-1-a");
    bench.fake.Group(groups->FolderOf(names.back())
                         .substr(bench.fake.path().size() + std::string(kUnit).size()));
  }
  std::vector<std::thread> threads;
  for (const std::string& name : names) {
    // Who waits too long for the others asks again, as an agent does.
    threads.emplace_back([&groups, &name] {
      for (int tries = 0; tries < 100 && !groups->GiveCpus(name, 4).ok();) ++tries;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CpuSet all;
  for (const std::string& name : names) all.merge(*ParseCpuList(bench.Has(*groups, name)));
  CHECK(CpuListText(all) == "0-63");
}

}  // namespace
}  // namespace trireme::control_group
