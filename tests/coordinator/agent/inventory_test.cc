// What a node says it has is what its control group lets ranks take.
#include "coordinator/agent/inventory.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/runtime/base/fake_root.h"

namespace trireme::agent {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST_CASE("a node offers the memory of its machine, or of a tighter control group") {
  base::FakeRoot root;
  CHECK(TakeInventory("n1", "0", root.path()).memory_bytes() == 8192 * kMiB);
  root.Write("/proc/self/cgroup", "0::/agent\n");
  root.Write("/proc/self/mountinfo", base::kMount2);
  root.Group2("/agent", std::to_string(1000 * kMiB), 900 * kMiB);
  const v1::AgentHello hello = TakeInventory("n1", "0", root.path());
  CHECK(hello.memory_bytes() == 1000 * kMiB);
  CHECK(hello.node() == "n1");
  CHECK(hello.cpus() >= 1);
  // The smallest limit of all, not that which others have left least of at present.
  root.Write("/proc/self/cgroup", "0::/slice/agent\n");
  root.Group2("/slice", std::to_string(2000 * kMiB), 1950 * kMiB);
  root.Group2("/slice/agent", std::to_string(1000 * kMiB), 0);
  CHECK(TakeInventory("n1", "0", root.path()).memory_bytes() == 1000 * kMiB);
}

}  // namespace
}  // namespace trireme::agent
