// Whose a control group is: what systemd keeps for itself is let be, also by root.
#include "coordinator/control_group/delegation.h"

#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/coordinator/control_group/fake_groups.h"
#include "tests/skip.h"

namespace trireme::control_group {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a group that may be written to, where no systemd is, is ours") {
  const FakeGroups fake;
  const Delegation found = FindDelegation(fake.path());
  CHECK(found.kind == Kind::kDelegated);
  CHECK(found.folder == kUnit);
  CHECK((found.Has("memory") && found.Has("pids") && !found.Has("hugetlb")));
}

TEST_CASE("no cgroup v2, or none that is seen, is none") {
  FakeGroups fake;
  SECTION("v1 alone") { fake.Write("/proc/self/cgroup", "4:memory:/unit\n1:name=systemd:/unit\n"); }
  SECTION("not mounted") {
    fake.Write("/proc/self/mountinfo", "35 31 0:32 / /m rw - cgroup c rw,memory\n");
  }
  SECTION("mounted from another part of the tree") {
    fake.Write("/proc/self/mountinfo", "31 23 0:28 /un /sys/fs/cgroup rw - cgroup2 c rw\n");
  }
  SECTION("above the namespace") { fake.Write("/proc/self/cgroup", "0::/../unit\n"); }
  SECTION("nonsense") { fake.Write("/proc/self/mountinfo", "short\n36 35 - cgroup2\n"); }
  const Delegation found = FindDelegation(fake.path());
  CHECK(found.kind == Kind::kNoVersion2);
  CHECK(found.folder.empty());
}

TEST_CASE("a container's own part of the tree is found by its mount") {
  FakeGroups fake;
  fake.Write("/proc/self/cgroup", "0::/docker/abc/unit\n");
  fake.Write("/proc/self/mountinfo", "31 23 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 c rw\n");
  CHECK(FindDelegation(fake.path()).folder == kUnit);
}

TEST_CASE("what lacks a file that has to be written to is not delegated") {
  const FakeGroups fake;
  fs::remove(fake.path() + kUnit + "/cgroup.subtree_control");
  const Delegation found = FindDelegation(fake.path());
  CHECK(found.kind == Kind::kNotDelegated);
  CHECK(found.folder == kUnit);
}

// Its word, in a name that we may write.
bool Say(const FakeGroups& fake) {
  const std::string unit = fake.path() + kUnit;
  return setxattr(unit.c_str(), "user.delegate", "1", 1, 0) == 0 ||
         setxattr(unit.c_str(), "trusted.delegate", "1", 1, 0) == 0;
}

TEST_CASE("under systemd its word is needed") {
  FakeGroups fake;
  fake.Write("/run/systemd/system/x", "");
  CHECK(FindDelegation(fake.path()).kind == Kind::kNotDelegated);
  if (!Say(fake)) TRIREME_SKIP("not here: extended attributes in /tmp");
  CHECK(FindDelegation(fake.path()).kind == Kind::kDelegated);
  // The word is of one group, not of those below.
  fake.Group("/below");
  fake.Write("/proc/self/cgroup", "0::/unit/below\n");
  CHECK(FindDelegation(fake.path()).kind == Kind::kNotDelegated);
}

TEST_CASE("a user who may write to what is his manager's needs its word too") {
  if (geteuid() != 0) TRIREME_SKIP("not here: root");
  constexpr uid_t kNobody = 65534;
  FakeGroups fake;
  fs::permissions(fake.path(), fs::perms::all);
  for (const auto& entry : fs::recursive_directory_iterator(fake.path())) {
    REQUIRE(chown(entry.path().c_str(), kNobody, kNobody) == 0);
  }
  const auto as_nobody = [&] {
    REQUIRE(seteuid(kNobody) == 0);
    const Kind kind = FindDelegation(fake.path()).kind;
    REQUIRE(seteuid(0) == 0);
    return kind;
  };
  CHECK(as_nobody() == Kind::kDelegated);
  fake.Write("/run/systemd/system/x", "");
  CHECK(as_nobody() == Kind::kNotDelegated);
}

TEST_CASE("an agent's leaf, and systemd's, is in the group that is meant") {
  for (const char* leaf : {"/trireme-agent", "/.control"}) {
    FakeGroups fake;
    fake.Group("/.control");
    fake.Write("/proc/self/cgroup", std::string("0::/unit") + leaf + "\n");
    const Delegation found = FindDelegation(fake.path());
    CHECK(found.kind == Kind::kDelegated);
    CHECK(found.folder == kUnit);
  }
}

TEST_CASE("of another process it is told whether it has taken its group over") {
  FakeGroups fake;
  fake.Write(FakeGroups::Unit("/cgroup.subtree_control"), "memory pids\n");
  fake.Write("/proc/77/cgroup", "0::/unit/trireme-agent\n");
  const Delegation found = FindDelegation(fake.path(), "77");
  CHECK(found.kind == Kind::kDelegated);
  CHECK(found.folder == kUnit);
  CHECK((found.HasEnabled("memory") && !found.HasEnabled("cpuset")));
  fake.Write("/proc/77/cgroup", "0::/unit\n");
  CHECK(FindDelegation(fake.path(), "77").kind == Kind::kNotDelegated);
}

}  // namespace
}  // namespace trireme::control_group
