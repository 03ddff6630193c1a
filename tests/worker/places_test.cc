// Threads and memory of ranks that are spread over machines, as srun spreads them.
#include "worker/places.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/choice.h"
#include "runtime/comm/local/local_fabric.h"
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

// What all of four ranks say of `places`, each reading names under its own of `roots` (none: they
// have no group). They must say the same.
std::string Verdict(std::span<const Place> places, const std::vector<std::string>& roots = {}) {
  std::vector<absl::Status> statuses(4);
  const auto run = comm::RunRanks(4, [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(const auto agreement, comm::Agreement::Make(fabric, std::chrono::minutes(1)));
    const auto own = static_cast<size_t>(fabric.rank());
    // Not returned: the others would hear of a lost rank.
    statuses[own] =
        CheckFits(PlanOfFour(), places, *agreement, roots.empty() ? "/nowhere" : roots[own]);
    return absl::OkStatus();
  });
  for (const absl::Status& status : run) REQUIRE(status.ToString() == "OK");
  for (const absl::Status& status : statuses) {
    CHECK(status == statuses[0]);
    CHECK((status.ok() || absl::IsResourceExhausted(status)));
  }
  return std::string(statuses[0].message());
}

TEST_CASE("ranks share the cores of their own machine only") {
  const Place places[] = {At(1, 7, 8), At(1, 7, 8), At(2, 7, 8), At(2, 7, 8), At(2, 7, 8)};
  CHECK(ThreadsAt(places, 0) == 4);
  CHECK(ThreadsAt(places, 1) == 4);
  CHECK(ThreadsAt(places, 4) == 2);
  CHECK(LeastThreads(places) == 2);
}

TEST_CASE("a rank bound to cores of its own uses all of them") {
  const Place places[] = {At(1, 7, 4), At(1, 8, 4), At(1, 9, 2)};
  CHECK(ThreadsAt(places, 0) == 4);
  CHECK(ThreadsAt(places, 1) == 4);
  CHECK(ThreadsAt(places, 2) == 2);
  CHECK(LeastThreads(places) == 2);
}

TEST_CASE("more ranks than cores have a thread each") {
  const Place places[] = {At(1, 7, 2), At(1, 7, 2), At(1, 7, 2)};
  CHECK(ThreadsAt(places, 2) == 1);
}

TEST_CASE("a plan fits when each machine holds its own ranks") {
  const Place spread[] = {At(1, 0, 1, 400), At(2, 0, 1, 400), At(1, 0, 1, 400), At(2, 0, 1, 400)};
  CHECK(Verdict(spread).empty());
  const Place together[] = {At(1, 0, 1, 799), At(1, 0, 1, 799), At(1, 0, 1, 799), At(1, 0, 1, 799)};
  CHECK_THAT(Verdict(together),
             Catch::Contains("needs 800 MiB on this machine for 4 ranks, but 799 MiB are "
                             "available. Use more machines, or what trireme plan JOB --fit "
                             "199MiB names"));
}

TEST_CASE("snapshots that an attempt before has left in memory need no more of it") {
  v1::Plan plan = PlanOfFour();
  for (v1::StagePlan& stage : *plan.mutable_stages()) stage.set_snapshot_bytes(50 * kMiB);
  std::vector<Place> places(4, At(1, 0, 1, 900));
  REQUIRE(FindShortage(plan, places).has_value());
  CHECK(FindShortage(plan, places)->wanted_bytes == 1000 * kMiB);
  // More than the snapshots take, as of a layout before, is given back: it is not needed.
  for (Place& place : places) place.held_bytes = 1000 * kMiB;
  CHECK_FALSE(FindShortage(plan, places).has_value());
  for (Place& place : places) place.held_bytes = 20 * kMiB;
  CHECK(FindShortage(plan, places)->wanted_bytes == 920 * kMiB);
}

TEST_CASE("the machine that is too small is named by its first rank") {
  const Place places[] = {At(1, 0, 1, 200), At(1, 0, 1, 200), At(2, 0, 1, 500), At(2, 0, 1, 500)};
  CHECK_THAT(Verdict(places),
             Catch::Contains("needs 600 MiB on the machine of rank 2 for 2 ranks, but 500 MiB"));
}

TEST_CASE("one rank on a machine is not many") {
  const Place places[] = {At(1, 0, 1), At(2, 0, 1), At(3, 0, 1, 1), At(4, 0, 1)};
  CHECK_THAT(Verdict(places), Catch::Contains("on the machine of rank 2 for 1 rank, but 1 MiB"));
}

TEST_CASE("a system that does not say what it has refuses nothing") {
  const Place places[] = {At(1, 0, 1), At(1, 0, 1), At(1, 0, 1), At(1, 0, 1)};
  CHECK(Verdict(places).empty());
}

// `place` with one more limit.
Place Within(Place place, uint64_t inode, uint64_t limit_mib, uint64_t available_mib) {
  size_t next = 0;
  while (place.limits[next].inode != 0) ++next;
  place.limits[next] = {1, inode, limit_mib * kMiB, available_mib * kMiB};
  return place;
}

TEST_CASE("ranks in one control group share what its limit leaves") {
  const v1::Plan plan = PlanOfFour();
  const Place at = At(1, 0, 1, 9000);
  const Place fits = Within(at, 5, 1000, 800);
  const Place tight = Within(at, 5, 1000, 799);
  const Place wide[] = {fits, fits, fits, fits};
  CHECK_FALSE(FindShortage(plan, wide).has_value());
  const Place shared[] = {tight, tight, tight, tight};
  const std::optional<Shortage> found = FindShortage(plan, shared);
  REQUIRE(found.has_value());
  CHECK(found->first_rank == 0);
  CHECK(found->ranks == 4);
  CHECK(found->wanted_bytes == 800 * kMiB);
  CHECK(found->available_bytes == 799 * kMiB);
  CHECK(found->group.limit_bytes == 1000 * kMiB);
  // A group of each rank's own, of which that of rank 2 is too small.
  const Place own[] = {Within(at, 5, 400, 300), Within(at, 6, 400, 300), Within(at, 7, 300, 299),
                       Within(at, 8, 400, 300)};
  REQUIRE(FindShortage(plan, own).has_value());
  CHECK(FindShortage(plan, own)->first_rank == 2);
  CHECK(FindShortage(plan, own)->ranks == 1);
  // One number on two machines, or of two file systems, is two groups.
  Place there = tight;
  there.machine = 2;
  const Place apart[] = {tight, tight, there, there};
  CHECK_FALSE(FindShortage(plan, apart).has_value());
  Place beside = tight;
  beside.limits[0].device = 2;
  const Place mounts[] = {tight, tight, beside, beside};
  CHECK_FALSE(FindShortage(plan, mounts).has_value());
  // A limit that leaves nothing is a limit, other than a machine that does not say.
  const Place none = Within(At(1, 0, 1), 5, 100, 0);
  const Place full[] = {none, none, none, none};
  CHECK(FindShortage(plan, full).has_value());
}

TEST_CASE("a group above the ranks' own counts for all that are below it") {
  const v1::Plan plan = PlanOfFour();
  const auto place = [](uint64_t own, uint64_t step, uint64_t step_mib, uint64_t job_mib) {
    const Place in_task = Within(At(1, 0, 1, 9000), own, 500, 300);
    return Within(Within(in_task, step, 5000, step_mib), 9, 6000, job_mib);
  };
  const auto find = [&](uint64_t step_mib, uint64_t job_mib) {
    const Place places[] = {place(1, 5, 400, job_mib), place(2, 5, 400, job_mib),
                            place(3, 6, step_mib, job_mib), place(4, 6, step_mib, job_mib)};
    return FindShortage(plan, places);
  };
  CHECK_FALSE(find(600, 800).has_value());
  // Each rank and each step fits; the four together do not.
  REQUIRE(find(600, 799).has_value());
  CHECK(find(600, 799)->group.inode == 9);
  CHECK(find(600, 799)->ranks == 4);
  CHECK(find(600, 799)->wanted_bytes == 800 * kMiB);
  // The second step, whose first rank is 2.
  REQUIRE(find(599, 800).has_value());
  CHECK(find(599, 800)->group.inode == 6);
  CHECK(find(599, 800)->first_rank == 2);
  CHECK(find(599, 800)->ranks == 2);
  CHECK(find(599, 800)->wanted_bytes == 600 * kMiB);
}

void BeIn(base::FakeRoot& root, const std::string& group) {
  root.Write("/proc/sys/kernel/random/boot_id", "one\n");
  root.Write("/proc/self/cgroup", "0::" + group + "\n");
  root.Write("/proc/self/mountinfo", base::kMount2);
}

std::string Bytes(uint64_t mib) { return std::to_string(mib * kMiB); }

TEST_CASE("a place has the memory of its machine and the limit of its control group") {
  base::FakeRoot root;
  BeIn(root, "/job");
  root.Group2("/job", Bytes(1000), 201 * kMiB);
  const Place place = ThisPlace(root.path());
  CHECK(place.available_bytes == 4096 * kMiB);
  CHECK(place.limits[0].limit_bytes == 1000 * kMiB);
  CHECK(place.limits[0].available_bytes == 799 * kMiB);
  CHECK(place.limits[1].inode == 0);
  // The four need 800: the machine has them, the group does not.
  const Place places[] = {place, place, place, place};
  const std::vector<std::string> roots(4, root.path());
  CHECK_THAT(Verdict(places, roots),
             Catch::Contains("needs 800 MiB on this machine for 4 ranks, but 799 MiB are available "
                             "below the limit of 1000 MiB in /sys/fs/cgroup/job/memory.max, as "
                             "rank 0 sees it. Raise that limit, use"));
  root.Group2("/job", Bytes(1000), 200 * kMiB);
  const Place wider = ThisPlace(root.path());
  const Place fitting[] = {wider, wider, wider, wider};
  CHECK(Verdict(fitting, roots).empty());
}

TEST_CASE("two containers on one machine have two groups of one name") {
  base::FakeRoot one, two;
  for (base::FakeRoot* root : {&one, &two}) BeIn(*root, "/");
  one.Group2("", Bytes(250), 0);
  two.Group2("", Bytes(650), 0);
  const std::vector<std::string> roots = {one.path(), one.path(), two.path(), two.path()};
  const auto verdict = [&] {
    const Place first = ThisPlace(one.path()), second = ThisPlace(two.path());
    CHECK(first.machine == second.machine);
    const Place places[] = {first, first, second, second};
    return Verdict(places, roots);
  };
  // 200 of 250, and 600 of 650.
  CHECK(verdict().empty());
  two.Group2("", Bytes(650), 51 * kMiB);
  CHECK_THAT(verdict(),
             Catch::Contains("needs 600 MiB on this machine for 2 ranks, but 599 MiB are "
                             "available below the limit of 650 MiB in "
                             "/sys/fs/cgroup/memory.max, as rank 2 sees it"));
}

TEST_CASE("names of any length tell groups apart, and are told whole by the rank that has them") {
  const std::string pod = "/kubepods.slice/" + std::string(200, 'p') + "/" + std::string(64, 'c');
  base::FakeRoot root;
  const std::vector<std::string> groups = {pod + "1", pod + "1", pod + "2", pod + "2"};
  // A machine on which only ranks 2 and 3 could say what the second group is called.
  base::FakeRoot other;
  const std::vector<std::string> roots = {other.path(), other.path(), root.path(), root.path()};
  const auto verdict = [&] {
    std::vector<Place> places;
    for (const std::string& group : groups) {
      BeIn(root, group);
      places.push_back(ThisPlace(root.path()));
    }
    return Verdict(places, roots);
  };
  root.Group2(pod + "1", Bytes(250), 0);
  root.Group2(pod + "2", Bytes(650), 0);
  CHECK(verdict().empty());
  root.Group2(pod + "2", Bytes(599), 0);
  CHECK_THAT(verdict(), Catch::Contains("for 2 ranks, but 599 MiB are available below the limit of "
                                        "599 MiB in /sys/fs/cgroup" +
                                        pod + "2/memory.max, as rank 2 sees it"));
}

TEST_CASE("tasks with limits of their own do not hide that of their job") {
  base::FakeRoot root;
  const std::vector<std::string> roots(4, root.path());
  const auto verdict = [&](uint64_t job_mib) {
    root.Group2("/job", Bytes(job_mib), 0);
    std::vector<Place> places;
    for (const char* task : {"/job/task_0", "/job/task_1", "/job/task_2", "/job/task_3"}) {
      root.Group2(task, Bytes(400), 0);
      BeIn(root, task);
      places.push_back(ThisPlace(root.path()));
    }
    return Verdict(places, roots);
  };
  CHECK(verdict(800).empty());
  CHECK_THAT(verdict(799), Catch::Contains("needs 800 MiB on this machine for 4 ranks, but 799 MiB "
                                           "are available below the limit of 799 MiB in "
                                           "/sys/fs/cgroup/job/memory.max, as rank 0 sees it"));
}

TEST_CASE("of more limits than a place has room for, the tightest are told") {
  base::FakeRoot root;
  std::string group;
  for (uint64_t level = 1; level <= kGroupLimits + 3; ++level) {
    group += "/g";
    root.Group2(group, Bytes(100 * level), 0);  // the outer ones are tighter
  }
  BeIn(root, group);
  const Place place = ThisPlace(root.path());
  for (size_t i = 0; i < kGroupLimits; ++i) {
    CHECK(place.limits[i].limit_bytes == 100 * (i + 1) * kMiB);
    CHECK(place.limits[i].inode != 0);
  }
}

TEST_CASE("a machine that does not tell its start is known by the host's name") {
  base::FakeRoot root;
  const uint64_t without = ThisPlace(root.path()).machine;
  root.Write("/proc/sys/kernel/random/boot_id", base::HostName() + "\n");
  CHECK(ThisPlace(root.path()).machine == without);
  BeIn(root, "/");
  CHECK(ThisPlace(root.path()).machine != without);
}

TEST_CASE("the places of a large job go up and down a tree") {
  for (const int ranks : {17, 65, 300, 3072}) {
    const comm::CallShape shape = {
        .kind = comm::CollectiveKind::kAllGather,
        .ranks = ranks,
        .bytes = ranks * static_cast<int64_t>(sizeof(Place)),
        .largest_share_bytes = static_cast<int64_t>(sizeof(Place)),
        .staging_bytes = int64_t{1} << 30,
    };
    CHECK(comm::Choose(shape) == comm::AlgorithmKind::kGatherTree);
  }
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
