// Jobs that nodes could not start keep off these, and off nothing else.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "coordinator/scheduler/scheduler.h"
#include "tests/coordinator/scheduler/cluster_builder.h"

namespace trireme::coordinator {
namespace {

// Of four CPUs each.
std::vector<NodeCapacity> FourCpus(int count) {
  std::vector<NodeCapacity> nodes;
  for (int i = 1; i <= count; ++i) nodes.push_back({"n" + std::to_string(i), 4, 64 * kGiB, 0});
  return nodes;
}

Waiting Avoiding(uint64_t id, uint32_t ranks, std::vector<std::string> nodes) {
  Waiting job = Job(id, {ranks});
  job.asked.avoids = std::move(nodes);
  job.asked.waits_for_others = true;
  return job;
}

Holding Ending(Holding held, int64_t end) {
  held.ends_unix_ns = end;
  return held;
}

constexpr int64_t kNow = 100 * kSecondNs;

std::string PlaceOf(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding,
                    const std::vector<Waiting>& queue, uint64_t job) {
  return Text(Decide(nodes, holding, queue, {}, kNow).allocations[job]);
}

TEST_CASE("avoided nodes: others are taken, and waited for while they can hold the job") {
  CHECK(PlaceOf(FourCpus(3), {}, {Avoiding(1, 4, {"n1"})}, 1) == "n2:4");
  CHECK(PlaceOf(FourCpus(3), {}, {Avoiding(1, 8, {"n1"})}, 1) == "n2:4 n3:4");
  const std::vector<Holding> busy = {Held(7, {3}, "n2"), Held(8, {3}, "n3")};
  const Decided decision =
      Decide(FourCpus(3), busy, {Avoiding(1, 4, {"n1"}), Job(2, {4})}, {}, kNow);
  CHECK(decision.waits.at(1).reason ==
        "waits for 4 CPUs; 2 of 8 are free; it keeps off node n1, which could not start it");
  // One that asks for the same and keeps off nothing is not of its line.
  CHECK(Text(decision.allocations.at(2)) == "n1:4");
}

TEST_CASE("avoided nodes: who does not wait for others goes there while these are busy") {
  Waiting job = Avoiding(1, 4, {"n2", "n1"});
  job.asked.waits_for_others = false;
  CHECK(PlaceOf(FourCpus(3), {}, {job}, 1) == "n3:4");
  CHECK(PlaceOf(FourCpus(3), {Held(7, {1}, "n3")}, {job}, 1) == "n2:4");
  CHECK(PlaceOf(FourCpus(3), {Held(7, {1}, "n3")}, {Avoiding(1, 4, {"n2", "n1"})}, 1).empty());
}

TEST_CASE("avoided nodes: where no others hold it, the one that failed longest ago goes first") {
  CHECK(PlaceOf(FourCpus(1), {}, {Avoiding(1, 4, {"n1"})}, 1) == "n1:4");
  CHECK(PlaceOf(FourCpus(3), {}, {Avoiding(1, 4, {"n2", "n3", "n1"})}, 1) == "n2:4");
  CHECK(PlaceOf(FourCpus(3), {Held(7, {1}, "n2")}, {Avoiding(1, 4, {"n2", "n3", "n1"})}, 1) ==
        "n3:4");
  CHECK(PlaceOf(FourCpus(2), {}, {Avoiding(1, 8, {"n1"})}, 1) == "n1:4 n2:4");
  CHECK(PlaceOf(FourCpus(3), {}, {Avoiding(1, 8, {"n1", "n2"})}, 1) == "n1:4 n3:4");
  // What is drained or gone holds nothing.
  std::vector<NodeCapacity> nodes = FourCpus(2);
  nodes[1].usable = false;
  CHECK(PlaceOf(nodes, {}, {Avoiding(1, 4, {"n1", "gone"})}, 1) == "n1:4");
  nodes[0].usable = false;
  CHECK(Decide(nodes, {}, {Avoiding(1, 4, {"n1"})}, {}, kNow).waits.at(1).reason ==
        "too few nodes are left for it: node n1 is not usable; node n2 is not usable");
}

TEST_CASE("avoided nodes: reservations are on the others, and those of before are not delayed") {
  const int64_t end = kNow + 50 * kSecondNs;
  // n1 is free, but it waits for n2; who runs on n1 for ever is in nobody's way.
  const Decided own = Decide(FourCpus(2), {Ending(Held(7, {4}, "n2"), end)},
                             {Avoiding(1, 4, {"n1"}), Job(2, {4})}, {}, kNow);
  REQUIRE(own.reservations.contains(1));
  CHECK(own.reservations.at(1).start_unix_ns == end);
  CHECK(Text(own.reservations.at(1).allocation) == "n2:4");
  CHECK(Text(own.allocations.at(2)) == "n1:4");
  // Who does not wait for others has one of them all the same, where both are free by then.
  Waiting soon = Avoiding(1, 4, {"n1"});
  soon.asked.waits_for_others = false;
  const std::vector<Holding> both = {Ending(Held(7, {4}, "n1"), end),
                                     Ending(Held(8, {4}, "n2"), end)};
  CHECK(Text(Decide(FourCpus(2), both, {soon}, {}, kNow).reservations.at(1).allocation) == "n2:4");
  soon.asked.avoids = {"n2", "n1"};
  CHECK(Text(Decide(FourCpus(2), both, {soon}, {}, kNow).reservations.at(1).allocation) == "n2:4");
  // The first has both nodes then: the second, which would fit on n2 now, has no end.
  const Decided others = Decide(FourCpus(2), {Ending(Held(7, {4}, "n1"), end)},
                                {Job(1, {8}), Avoiding(2, 4, {"n1"})}, {}, kNow);
  CHECK(Text(others.reservations.at(1).allocation) == "n1:4 n2:4");
  CHECK_FALSE(others.allocations.contains(2));
  CHECK(others.waits.at(2).reason.find("it would not end before job 1 starts there") !=
        std::string::npos);
}

TEST_CASE("avoided nodes: one that has lost its patience holds none of them") {
  const int64_t late = 5000 * kSecondNs;
  const Decided decision = Decide(FourCpus(2), {Held(7, {1}, "n2")},
                                  {Avoiding(1, 4, {"n1"}), Job(2, {1}), Job(3, {4})}, {}, late);
  CHECK(Text(decision.allocations.at(2)) == "n1:1");
  // 1 cannot be passed on n2, where 3 could not be anyway.
  CHECK(decision.waits.contains(3));
}

TEST_CASE("avoided nodes: a decision looks at the lines of those that avoid the same") {
  Queue queue;
  for (uint64_t id = 1; id <= 3000; ++id) {
    queue.Add(id % 3 == 0 ? Job(id, {8})
                          : Avoiding(id, 8, {id % 3 == 1 ? "n1" : "n2", "n" + std::to_string(3)}));
  }
  const std::vector<Holding> holding = {Held(7001, {4}, "n1"), Held(7002, {4}, "n2"),
                                        Held(7003, {4}, "n3")};
  CHECK(Schedule(FourCpus(3), holding, queue, {}, kNow).looked_at == 3);
}

}  // namespace
}  // namespace trireme::coordinator
