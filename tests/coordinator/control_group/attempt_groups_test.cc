// An attempt's group has the bounds that are asked for, belongs to one agent, and what is in it
// ends as one, whatever it has done to its environment.
#include "coordinator/control_group/attempt_groups.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "coordinator/control_group/group_files.h"
#include "tests/coordinator/control_group/fake_groups.h"
#include "tests/coordinator/control_group/real_groups.h"
#include "tests/skip.h"

namespace trireme::control_group {
namespace {

namespace fs = std::filesystem;

const Bounds kBounds{.memory_bytes = 12345678, .tasks = 400};

std::unique_ptr<AttemptGroups> Opened(const std::string& state, const std::string& root) {
  auto groups = AttemptGroups::Open(state, root);
  REQUIRE(groups.ok());
  return *std::move(groups);
}

// Of its name within the unit.
std::string NameIn(const FakeGroups& fake, const AttemptGroups& groups, const char* attempt) {
  return groups.FolderOf(attempt).substr(fake.path().size() + std::string(kUnit).size());
}

TEST_CASE("the agent goes to its leaf before it enables controllers for others") {
  const FakeGroups fake;
  const auto groups = Opened("/state", fake.path());
  CHECK(fake.Read(FakeGroups::Unit("/trireme-agent/cgroup.procs")) == "0");
  CHECK(fake.Read(FakeGroups::Unit("/cgroup.subtree_control")) == "+cpuset");  // the last
  CHECK(groups->limits() == "memory and pids");
  CHECK(groups->base() == kUnit);
  CHECK(groups->complaint().empty());
}

TEST_CASE("bounds are written, and what is bounded keeps its bounds") {
  FakeGroups fake;
  const auto groups = Opened("/state", fake.path());
  const std::string name = NameIn(fake, *groups, "trireme-7-1-89abcdef");
  fake.Group(name);
  const auto read = [&](const char* file) { return fake.Read(FakeGroups::Unit(name + file)); };
  REQUIRE(groups->Make("trireme-7-1-89abcdef", kBounds).ok());
  CHECK(read("/memory.max") == "12345678");
  CHECK(read("/memory.oom.group") == "1");
  CHECK(read("/pids.max") == "400");
  // A lower limit than what is taken would kill.
  REQUIRE(groups->Make("trireme-7-1-89abcdef", {.memory_bytes = 5, .tasks = 6}).ok());
  CHECK((read("/memory.max") == "12345678" && read("/pids.max") == "400"));
}

TEST_CASE("controllers that could not be had are tried again with each attempt") {
  FakeGroups fake;
  const std::string control = fake.path() + FakeGroups::Unit("/cgroup.subtree_control");
  fs::remove(control);
  fs::create_directory(control);  // cannot be written to
  const auto groups = Opened("/state", fake.path());
  CHECK(groups->limits().empty());
  CHECK(groups->complaint().find("subtree_control") != std::string::npos);
  const std::string attempt = "trireme-7-1-89abcdef", name = NameIn(fake, *groups, attempt.c_str());
  fake.Group(name);
  const absl::Status made = groups->Make(attempt, kBounds);
  CHECK(std::string(made.message()).find("subtree_control") != std::string::npos);
  CHECK(fake.Read(FakeGroups::Unit(name + "/memory.max")) == "max\n");
  CHECK(groups->Make(attempt, {}).ok());  // misses nothing
  fs::remove(control);
  fake.Write(FakeGroups::Unit("/cgroup.subtree_control"), "");
  CHECK(groups->Bound(attempt, kBounds).ok());
  CHECK(fake.Read(FakeGroups::Unit(name + "/memory.max")) == "12345678");
  CHECK(fake.Read(FakeGroups::Unit(name + "/pids.max")) == "400");
}

TEST_CASE("what is not asked for is not bounded") {
  FakeGroups fake;
  const auto groups = Opened("/state", fake.path());
  const std::string name = NameIn(fake, *groups, "trireme-7-1-89abcdef");
  fake.Group(name);
  REQUIRE(groups->Make("trireme-7-1-89abcdef", {}).ok());
  CHECK(fake.Read(FakeGroups::Unit(name + "/memory.max")) == "max\n");
  CHECK(fake.Read(FakeGroups::Unit(name + "/memory.oom.group")) == "1");  // else one rank may die
  CHECK(fake.Read(FakeGroups::Unit(name + "/pids.max")) == "max\n");
}

TEST_CASE("without controllers there are groups without limits") {
  FakeGroups fake;
  fake.Write(FakeGroups::Unit("/cgroup.controllers"), "cpu\n");
  const auto groups = Opened("/state", fake.path());
  CHECK(groups->limits().empty());
  const std::string name = NameIn(fake, *groups, "trireme-7-1-89abcdef");
  fake.Group(name);
  REQUIRE(groups->Make("trireme-7-1-89abcdef", kBounds).ok());
  CHECK(fake.Read(FakeGroups::Unit(name + "/memory.max")) == "max\n");
}

TEST_CASE("a bound that cannot be had is an error with the file's name") {
  const FakeGroups fake;
  const auto groups = Opened("/state", fake.path());
  const absl::Status made = groups->Make("trireme-7-1-89abcdef", kBounds);
  CHECK(std::string(made.message()).find("memory.oom.group") != std::string::npos);
}

TEST_CASE("what is not delegated, or an old kernel's, is not taken") {
  FakeGroups fake;
  SECTION("no leaf can be entered") {
    fs::remove(fake.path() + kUnit + "/trireme-agent/cgroup.procs");
  }
  SECTION("no cgroup.kill") { fs::remove(fake.path() + kUnit + "/trireme-agent/cgroup.kill"); }
  SECTION("no cgroup.kill, which is seen before anything is made") {
    fs::remove_all(fake.path() + kUnit + "/trireme-agent");
    fs::remove(fake.path() + kUnit + "/cgroup.kill");
    fake.Write(FakeGroups::Unit("/cgroup.events"), "populated 1\n");
    CHECK_FALSE(AttemptGroups::Open("/state", fake.path()).ok());
    CHECK_FALSE(fs::exists(fake.path() + kUnit + "/trireme-agent"));
  }
  SECTION("version 1") { fake.Write("/proc/self/cgroup", "4:memory:/unit\n"); }
  SECTION("not delegated") { fs::remove(fake.path() + kUnit + "/cgroup.procs"); }
  CHECK_FALSE(AttemptGroups::Open("/state", fake.path()).ok());
  CHECK(fake.Read(FakeGroups::Unit("/cgroup.subtree_control")).empty());
}

TEST_CASE("unknown groups of this agent are removed, and of no other") {
  const FakeGroups fake;
  const auto ours = Opened("/state", fake.path()), theirs = Opened("/other", fake.path());
  const auto again = Opened("/state/../state", fake.path());
  CHECK(ours->FolderOf("trireme-1-1-0000000a") == again->FolderOf("trireme-1-1-0000000a"));
  for (const char* name : {"trireme-1-1-0000000a", "trireme-2-1-0000000b"}) {
    fs::create_directory(ours->FolderOf(name));
    fs::create_directory(theirs->FolderOf(name));
  }
  fs::create_directory(fake.path() + kUnit + "/somebody");
  again->RemoveOthers({"trireme-1-1-0000000a"});
  CHECK(fs::exists(ours->FolderOf("trireme-1-1-0000000a")));
  CHECK_FALSE(fs::exists(ours->FolderOf("trireme-2-1-0000000b")));
  CHECK(fs::exists(theirs->FolderOf("trireme-2-1-0000000b")));
  CHECK(fs::exists(fake.path() + kUnit + "/somebody"));
  CHECK(fs::exists(fake.path() + kUnit + "/trireme-agent"));
}

TEST_CASE("memory events are read as the kernel writes them") {
  FakeGroups fake;
  fake.Write("/events", "low 0\nhigh 0\nmax 51\noom 2\noom_kill 3\noom_group_kill 1\n");
  const MemoryEvents events = ReadMemoryEvents(fake.path() + "/events");
  CHECK((events.limit_hits == 2 && events.kills == 3));
  CHECK(ReadMemoryEvents(fake.path() + "/none").kills == 0);
}

TEST_CASE("what is kept of kills for want of memory has the limit that there was") {
  FakeGroups fake;
  const std::string events = "oom 2\noom_kill 3\n";
  fake.Write("/group/memory.events", "oom 2\noom_kill 0\n");
  CHECK(MemoryKillsIn(fake.path() + "/group").empty());
  CHECK(MemoryKillsIn(fake.path() + "/none").empty());
  fake.Write("/group/memory.events", events);
  fake.Write("/group/memory.max", "max\n");
  CHECK(MemoryKillsIn(fake.path() + "/group") == events);
  fake.Write("/group/memory.max", "12288\n");  // as the kernel has rounded it
  CHECK(MemoryKillsIn(fake.path() + "/group") == events + "memory.max 12288\n");
  fake.Write("/kept", MemoryKillsIn(fake.path() + "/group"));
  const MemoryEvents kept = ReadMemoryEvents(fake.path() + "/kept");
  CHECK((kept.limit_hits == 2 && kept.kills == 3 && kept.limit_bytes == 12288));
}

// A child in the group, which has a grandchild of its own session without an environment.
void PutTree(const std::string& group) {
  const pid_t child = fork();
  if (child == 0) {
    if (Join(ProcsFile(group).c_str()) != 0) _exit(1);
    if (fork() == 0) {
      setsid();
      char sleeps[] = "/bin/sleep", seconds[] = "300";
      char* const argv[] = {sleeps, seconds, nullptr};
      char* const none[] = {nullptr};
      execve(sleeps, argv, none);
      _exit(127);
    }
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

TEST_CASE("what is in a group ends as one, and the next agent finds it [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  const std::string attempt = "trireme-7-1-89abcdef", unknown = "trireme-8-1-89abcdef";
  {
    const auto groups = Opened("/state", real->root());
    CHECK(IsPopulated(real->folder() + "/trireme-agent"));
    for (const std::string& name : {attempt, unknown}) {
      REQUIRE(groups->Make(name, {}).ok());
      CHECK_FALSE(IsPopulated(groups->FolderOf(name)));
      PutTree(groups->FolderOf(name));
      CHECK(IsPopulated(groups->FolderOf(name)));
    }
  }
  const auto next = Opened("/state", real->root());
  next->RemoveOthers({attempt});
  CHECK_FALSE(fs::exists(next->FolderOf(unknown)));
  CHECK(IsPopulated(next->FolderOf(attempt)));
  fs::create_directory(next->FolderOf(attempt) + "/inner");  // a job may have made one
  CHECK(RemoveGroup(next->FolderOf(attempt), 5000));
  CHECK_FALSE(fs::exists(next->FolderOf(attempt)));
}

}  // namespace
}  // namespace trireme::control_group
