// An attempt's CPUs are its own, of cores of their own as long as there are any, and of one node.
#include "coordinator/control_group/cpu_choice.h"

#include <catch2/catch.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "coordinator/control_group/cpu_list.h"

namespace trireme::control_group {
namespace {

struct Machine {
  int nodes = 1;
  int cores = 4;    // of a node
  int threads = 1;  // of a core
};

// As Linux numbers them: first threads of all cores, then the second ones.
CpuPlaces PlacesOf(const Machine& machine) {
  const int cores = machine.nodes * machine.cores;
  CpuPlaces places;
  for (int cpu = 0; cpu < cores * machine.threads; ++cpu) {
    const int core = cpu % cores;
    places[cpu] = {core, core / machine.cores};
  }
  return places;
}

std::string Chosen(const Machine& machine, const std::string& taken, size_t count) {
  return CpuListText(ChooseCpus(PlacesOf(machine), *ParseCpuList(taken), count));
}

TEST_CASE("CPUs: lists are read and written as the kernel does") {
  for (const char* text : {"", "0", "0-3", "0-3,8", "1,3,5-6", "0,2-65535"}) {
    const std::optional<CpuSet> cpus = ParseCpuList(text);
    REQUIRE(cpus);
    CHECK(CpuListText(*cpus) == text);
  }
  CHECK(ParseCpuList("\t0-1\n") == CpuSet{0, 1});
  for (const char* text : {"x", "-1", "3-", "3-1", "1,", ",1", "1 2", "0-4294967295", "65536",
                           "0x1", "1-2-3", "--", "+1", "3,1-2", "1-2,2", "0,0"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseCpuList(text));
  }
}

TEST_CASE("CPUs: neighbours, the lowest first, that nobody has") {
  const Machine plain{.cores = 8};
  CHECK(Chosen(plain, "", 3) == "0-2");
  CHECK(Chosen(plain, "0-2", 3) == "3-5");
  CHECK(Chosen(plain, "1,3", 3) == "0,2,4");
  CHECK(Chosen(plain, "0-3", 4) == "4-7");
  CHECK(Chosen(plain, "", 8) == "0-7");
}

TEST_CASE("CPUs: where so many are not left there are none") {
  const Machine plain{.cores = 8};
  CHECK(Chosen(plain, "", 9).empty());
  CHECK(Chosen(plain, "2", 8).empty());
  CHECK(Chosen(plain, "0-7", 1).empty());
  CHECK(Chosen(plain, "", 0).empty());
  CHECK(ChooseCpus({}, {}, 1).empty());
  CHECK(Chosen(plain, "100", 8) == "0-7");  // of another machine's part
}

TEST_CASE("CPUs: each of a core of its own, while there are cores that nobody uses") {
  const Machine smt{.cores = 4, .threads = 2};  // 0 and 4 are one core
  CHECK(Chosen(smt, "", 1) == "0");
  CHECK(Chosen(smt, "", 4) == "0-3");
  CHECK(Chosen(smt, "0", 3) == "1-3");
  CHECK(Chosen(smt, "0,4", 2) == "1-2");
  // Further threads of its own cores before a core of another's.
  CHECK(Chosen(smt, "", 5) == "0-4");
  CHECK(Chosen(smt, "0-1", 3) == "2-3,6");
  CHECK(Chosen(smt, "0-1", 4) == "2-3,6-7");
  CHECK(Chosen(smt, "0-1", 5) == "2-4,6-7");
  CHECK(Chosen(smt, "0-3", 2) == "4-5");
  CHECK(Chosen(smt, "", 8) == "0-7");
  // Four threads a core: 0, 2, 4 and 6 are one.
  CHECK(Chosen({.cores = 2, .threads = 4}, "", 4) == "0-3");
  CHECK(Chosen({.cores = 2, .threads = 4}, "0", 4) == "1,3,5,7");
}

TEST_CASE("CPUs: of one node, and of that which has the fewest left") {
  const Machine two{.nodes = 2, .cores = 4};
  CHECK(Chosen(two, "", 2) == "0-1");
  CHECK(Chosen(two, "0", 4) == "4-7");
  CHECK(Chosen(two, "4-5", 2) == "6-7");
  CHECK(Chosen(two, "0-1", 2) == "2-3");
  CHECK(Chosen(two, "0-1", 3) == "4-6");
  // Of as few as it takes, all of the larger part.
  CHECK(Chosen(two, "", 5) == "0-4");
  CHECK(Chosen(two, "0-1", 5) == "2,4-7");
  CHECK(Chosen({.nodes = 4, .cores = 2}, "1", 4) == "2-5");
}

TEST_CASE("CPUs: cores come before nodes") {
  const Machine machine{.nodes = 2, .cores = 2, .threads = 2};  // 0, 1, 4, 5 and 2, 3, 6, 7
  CHECK(Chosen(machine, "", 2) == "0-1");
  CHECK(Chosen(machine, "", 4) == "0-3");
  CHECK(Chosen(machine, "", 5) == "0-4");
  CHECK(Chosen(machine, "0", 2) == "2-3");
  CHECK(Chosen(machine, "0,4", 4) == "2-3,6-7");
}

TEST_CASE("CPUs: whatever comes and goes, sets are disjoint, whole and of what may be used") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const Machine machine{.nodes = 1 + static_cast<int>(random() % 3),
                          .cores = 1 + static_cast<int>(random() % 6),
                          .threads = 1 + static_cast<int>(random() % 3)};
    const CpuPlaces places = PlacesOf(machine);
    std::vector<CpuSet> live;
    CpuSet taken;
    for (int event = 0; event < 30; ++event) {
      if (!live.empty() && random() % 3 == 0) {
        const size_t gone = random() % live.size();
        for (const int cpu : live[gone]) taken.erase(cpu);
        live.erase(live.begin() + static_cast<long>(gone));
        continue;
      }
      const size_t count = 1 + random() % places.size();
      const CpuSet chosen = ChooseCpus(places, taken, count);
      const bool fits = taken.size() + count <= places.size();
      REQUIRE(chosen.size() == (fits ? count : 0));
      for (const int cpu : chosen) {
        REQUIRE(places.contains(cpu));
        REQUIRE(taken.insert(cpu).second);
      }
      if (fits) live.push_back(chosen);
    }
  }
}

}  // namespace
}  // namespace trireme::control_group
