// Threads and memory of ranks that are spread over machines, as srun spreads them.
#include "worker/places.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/runtime/base/fake_root.h"

namespace trireme::worker {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

Place At(uint64_t machine, uint64_t core_set, uint64_t cores, uint64_t available_mib = 0) {
  return {.machine = machine,
          .core_set = core_set,
          .cores = cores,
          .available_bytes = available_mib * kMiB};
}

// Two stages of two ranks each: ranks 0 and 1 need 100 MiB each, 2 and 3 need 300.
v1::Plan PlanOfFour() {
  v1::Plan plan;
  plan.mutable_mesh()->set_pipeline(2);
  plan.mutable_mesh()->set_data(1);
  plan.mutable_mesh()->set_tensor(2);
  plan.add_stages()->set_arena_bytes(100 * kMiB);
  plan.add_stages()->set_arena_bytes(300 * kMiB);
  return plan;
}

TEST_CASE("ranks share the cores of their own machine only") {
  const Place places[] = {At(1, 7, 8), At(1, 7, 8), At(2, 7, 8), At(2, 7, 8), At(2, 7, 8)};
  CHECK(ThreadsAt(places, 0) == 4);
  CHECK(ThreadsAt(places, 1) == 4);
  CHECK(ThreadsAt(places, 4) == 2);
}

TEST_CASE("a rank bound to cores of its own uses all of them") {
  const Place places[] = {At(1, 7, 4), At(1, 8, 4), At(1, 9, 2)};
  CHECK(ThreadsAt(places, 0) == 4);
  CHECK(ThreadsAt(places, 1) == 4);
  CHECK(ThreadsAt(places, 2) == 2);
}

TEST_CASE("more ranks than cores have a thread each") {
  const Place places[] = {At(1, 7, 2), At(1, 7, 2), At(1, 7, 2)};
  CHECK(ThreadsAt(places, 2) == 1);
}

TEST_CASE("a plan fits when each machine holds its own ranks") {
  const v1::Plan plan = PlanOfFour();
  const Place spread[] = {At(1, 0, 1, 400), At(2, 0, 1, 400), At(1, 0, 1, 400), At(2, 0, 1, 400)};
  CHECK(CheckFits(plan, spread).ok());
  const Place together[] = {At(1, 0, 1, 799), At(1, 0, 1, 799), At(1, 0, 1, 799), At(1, 0, 1, 799)};
  const absl::Status refused = CheckFits(plan, together);
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("needs 800 MiB on this machine for 4 ranks, but 799 MiB"));
}

TEST_CASE("the machine that is too small is named by its first rank") {
  const v1::Plan plan = PlanOfFour();
  const Place places[] = {At(1, 0, 1, 200), At(1, 0, 1, 200), At(2, 0, 1, 500), At(2, 0, 1, 500)};
  const absl::Status refused = CheckFits(plan, places);
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("needs 600 MiB on the machine of rank 2 for 2 ranks, but 500 MiB"));
}

TEST_CASE("one rank on a machine is not many") {
  const Place places[] = {At(1, 0, 1), At(2, 0, 1), At(3, 0, 1, 1), At(4, 0, 1)};
  CHECK_THAT(std::string(CheckFits(PlanOfFour(), places).message()),
             Catch::Contains("on the machine of rank 2 for 1 rank, but 1 MiB"));
}

TEST_CASE("a system that does not say what it has refuses nothing") {
  const Place places[] = {At(1, 0, 1), At(1, 0, 1), At(1, 0, 1), At(1, 0, 1)};
  CHECK(CheckFits(PlanOfFour(), places).ok());
}

Place Within(Place place, const char* group, uint64_t limit_mib, uint64_t available_mib) {
  std::string(group).copy(place.limit.data(), place.limit.size() - 1);
  place.limit_bytes = limit_mib * kMiB;
  place.limit_available_bytes = available_mib * kMiB;
  return place;
}

TEST_CASE("ranks in one control group share what its limit leaves, and the limit is named") {
  const v1::Plan plan = PlanOfFour();
  const Place at = At(1, 0, 1, 9000);
  const Place fits = Within(at, "/g/memory.max", 1000, 800);
  const Place tight = Within(at, "/g/memory.max", 1000, 799);
  const Place wide[] = {fits, fits, fits, fits};
  CHECK(CheckFits(plan, wide).ok());
  const Place shared[] = {tight, tight, tight, tight};
  const absl::Status refused = CheckFits(plan, shared);
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("needs 800 MiB on this machine for 4 ranks, but 799 MiB are "
                             "available below the limit of 1000 MiB in /g/memory.max"));
  // A group of each rank's own, of which that of rank 2 is too small.
  const Place own[] = {Within(at, "/a", 400, 300), Within(at, "/b", 400, 300),
                       Within(at, "/c", 300, 299), Within(at, "/d", 400, 300)};
  CHECK_THAT(std::string(CheckFits(plan, own).message()),
             Catch::Contains("300 MiB on this machine for 1 rank, but 299 MiB"));
  // One name on two machines is two groups.
  Place there = tight;
  there.machine = 2;
  const Place apart[] = {tight, tight, there, there};
  CHECK(CheckFits(plan, apart).ok());
  // A limit that leaves nothing is a limit, other than a machine that does not say.
  const Place none = Within(At(1, 0, 1), "/g", 100, 0);
  const Place full[] = {none, none, none, none};
  CHECK_FALSE(CheckFits(plan, full).ok());
}

TEST_CASE("a place has the memory of its machine and the limit of its control group") {
  base::FakeRoot root;
  root.Write("/proc/sys/kernel/random/boot_id", "one\n");
  root.Write("/proc/self/cgroup", "0::/job\n");
  root.Write("/proc/self/mountinfo", base::kMount2);
  root.Group2("/job", std::to_string(1000 * kMiB), 201 * kMiB);
  const Place place = ThisPlace(root.path());
  CHECK(place.available_bytes == 4096 * kMiB);
  CHECK(std::string(place.limit.data()) == "/sys/fs/cgroup/job/memory.max");
  CHECK(place.limit_bytes == 1000 * kMiB);
  CHECK(place.limit_available_bytes == 799 * kMiB);
  // The four need 800: the machine has them, the group does not.
  const Place places[] = {place, place, place, place};
  CHECK_THAT(std::string(CheckFits(PlanOfFour(), places).message()),
             Catch::Contains("needs 800 MiB on this machine for 4 ranks, but 799 MiB are available "
                             "below the limit of 1000 MiB in /sys/fs/cgroup/job/memory.max"));
  root.Group2("/job", std::to_string(1000 * kMiB), 200 * kMiB);
  const Place wider = ThisPlace(root.path());
  const Place fitting[] = {wider, wider, wider, wider};
  CHECK(CheckFits(PlanOfFour(), fitting).ok());
}

TEST_CASE("this place has cores, memory and a machine") {
  const Place here = ThisPlace();
  CHECK(here.cores >= 1);
  CHECK(here.available_bytes > kMiB);
  CHECK(here.machine == ThisPlace().machine);
  CHECK(here.core_set == ThisPlace().core_set);
}

}  // namespace
}  // namespace trireme::worker
