// What an agent's log says of its control groups: which it has, and as a warning what it lacks.
#include "coordinator/agent/control_groups.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <sstream>

#include "tests/coordinator/control_group/fake_groups.h"

namespace trireme::agent {
namespace {

using control_group::FakeGroups;

std::string SaidOf(const FakeGroups& fake, const char* mode) {
  std::ostringstream said;
  const auto before = spdlog::default_logger();
  auto logger =
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(said));
  logger->set_pattern("%l: %v");
  spdlog::set_default_logger(logger);
  OpenControlGroups(mode, "/state", fake.path());
  spdlog::set_default_logger(before);
  return said.str();
}

TEST_CASE("an agent's log says which control groups it has") {
  FakeGroups fake;
  CHECK(SaidOf(fake, kGroupsOff).find("info: control groups: off;") == 0);
  CHECK(SaidOf(fake, kGroupsAuto) ==
        "info: control groups: attempts are bounded by the kernel, memory and pids, below "
        "/sys/fs/cgroup/unit\n"
        "info: control groups: each attempt has CPUs of its own, as many as it was granted\n");
  CHECK(SaidOf(fake, kGroupsNoCpuset).find("share the CPUs: so says --control-groups no-cpuset") !=
        std::string::npos);
  fake.Write(FakeGroups::Unit("/cgroup.controllers"), "pids\n");
  CHECK(SaidOf(fake, kGroupsAuto) ==
        "info: control groups: attempts are bounded by the kernel, pids, below "
        "/sys/fs/cgroup/unit\n"
        "info: control groups: attempts share the CPUs: the controller cpuset is not there for "
        "them\n");
  fake.Write("/proc/self/cgroup", "4:memory:/unit\n");
  CHECK(SaidOf(fake, kGroupsAuto).find("info: control groups: none, no cgroup v2") == 0);
}

TEST_CASE("limits that an agent cannot have are a warning") {
  FakeGroups fake;
  const std::string control = fake.path() + FakeGroups::Unit("/cgroup.subtree_control");
  std::filesystem::remove(control);
  std::filesystem::create_directory(control);  // cannot be written to
  const std::string said = SaidOf(fake, kGroupsAuto);
  CHECK(said.find("ended as one by the kernel, without limits, below ") != std::string::npos);
  CHECK(said.find("warning: control groups: not all limits, until this is mended: ") !=
        std::string::npos);
  CHECK(said.find(control) != std::string::npos);
}

}  // namespace
}  // namespace trireme::agent
