// Who gets which allocation, and what those who wait are told.
#include "coordinator/scheduler/scheduler.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/coordinator/scheduler/cluster_builder.h"

namespace trireme::coordinator {
namespace {

std::vector<NodeCapacity> Nodes(const std::vector<uint32_t>& cpus) {
  std::vector<NodeCapacity> nodes;
  for (const uint32_t count : cpus) {
    nodes.push_back({"n" + std::to_string(nodes.size() + 1), count, 64 * kGiB, 0});
  }
  return nodes;
}

// Soon after the jobs were submitted: nobody has lost patience.
constexpr int64_t kSoon = 100 * kSecondNs;

std::string AllocationOf(const Decided& decision, uint64_t job) {
  const auto found = decision.allocations.find(job);
  return found == decision.allocations.end() ? "waits" : Text(found->second);
}

std::string ReasonOf(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding,
                     const Asks& asks) {
  const Decided decision = Decide(nodes, holding, {Job(1, asks)}, {}, kSoon);
  return decision.waits.count(1) == 0 ? "starts" : decision.waits.at(1).reason;
}

TEST_CASE("priority goes first and then the earlier submission") {
  const std::vector<Waiting> queue = {Job(3, {4}), Job(2, {4}), Job(9, {4}, 5), Job(1, {4}, -5)};
  const Decided decision = Decide(Nodes({4, 4}), {}, queue, {}, kSoon);
  CHECK(AllocationOf(decision, 9) == "n1:4");
  CHECK(AllocationOf(decision, 2) == "n2:4");
  REQUIRE(decision.waits.size() == 2);
  CHECK(decision.waits.at(3).position == 1);
  CHECK(decision.waits.at(1).position == 2);
  CHECK(decision.waits.at(3).reason == "waits for 4 CPUs; 0 of 8 are free");
  CHECK(decision.waits.at(1).reason == "waits for 4 CPUs; 0 of 8 are free; job 3 is before it");
}

TEST_CASE("a job that fits one node takes the one with the least left over") {
  const auto allocation = [](const std::vector<NodeCapacity>& nodes, const Asks& asks) {
    return AllocationOf(Decide(nodes, {}, {Job(1, asks)}, {}, kSoon), 1);
  };
  CHECK(allocation(Nodes({8, 3, 4, 3}), {3}) == "n2:3");
  CHECK(allocation(Nodes({8, 3, 4, 3}), {2, 2}) == "n3:2");
  CHECK(allocation(Nodes({8, 3, 4, 3}), {5}) == "n1:5");
  // GPUs are left to those who want some.
  std::vector<NodeCapacity> nodes = Nodes({4, 8});
  nodes[0].gpus = 2;
  CHECK(allocation(nodes, {4}) == "n2:4");
  CHECK(allocation(nodes, {2, 1, 0, 1}) == "n1:2");
}

TEST_CASE("a job that is larger than any node takes as few as it can") {
  const auto allocation = [](const std::vector<uint32_t>& cpus, const Asks& asks) {
    return AllocationOf(Decide(Nodes(cpus), {}, {Job(1, asks)}, {}, kSoon), 1);
  };
  CHECK(allocation({2, 8, 4, 8}, {16}) == "n2:8 n4:8");
  CHECK(allocation({2, 8, 4, 8}, {10}) == "n2:8 n1:2");
  CHECK(allocation({2, 8, 4, 8}, {11}) == "n2:8 n3:3");
  CHECK(allocation({3, 3, 3}, {3, 2}) == "n1:1 n2:1 n3:1");
  CHECK(allocation({3, 3, 3}, {4, 2}) == "waits");
}

TEST_CASE("what others hold is taken, memory and GPUs too") {
  std::vector<NodeCapacity> nodes = Nodes({8, 8});
  nodes[1].gpus = 4;
  const std::vector<Holding> holding = {Held(7, {2, 3, 20 * kGiB}, "n1"),
                                        Held(8, {1, 1, kGiB, 3}, "n2"), Held(9, {5}, "gone")};
  const auto allocation = [&](const Asks& asks) {
    return AllocationOf(Decide(nodes, holding, {Job(1, asks)}, {}, kSoon), 1);
  };
  CHECK(allocation({2}) == "n1:2");
  CHECK(allocation({3}) == "n2:3");
  CHECK(allocation({1, 1, 24 * kGiB}) == "n1:1");
  CHECK(allocation({1, 1, 24 * kGiB + 1}) == "n2:1");
  CHECK(allocation({1, 1, 0, 1}) == "n2:1");
  CHECK(allocation({2, 1, 0, 1}) == "waits");
  CHECK(allocation({1, 0, 0, 0}) == "n1:1");
}

TEST_CASE("a job stays on the nodes that it names and off those that are not usable") {
  std::vector<NodeCapacity> nodes = Nodes({4, 4, 4});
  nodes[1].usable = false;
  nodes[1].unusable_why = "drained: new\ndisk";
  CHECK(AllocationOf(Decide(nodes, {}, {Job(1, {4, 1, 0, 0, {"n3"}})}, {}, kSoon), 1) == "n3:4");
  CHECK(AllocationOf(Decide(nodes, {}, {Job(1, {8})}, {}, kSoon), 1) == "n1:4 n3:4");
  CHECK(ReasonOf(nodes, {}, {9}) == "too few nodes are left for it: node n2 is drained: new disk");
  CHECK(ReasonOf(nodes, {}, {1, 1, 0, 0, {"n2"}}) ==
        "too few nodes are left for it: node n2 is drained: new disk");
  CHECK(ReasonOf(nodes, {}, {1, 1, 0, 0, {"n7", "n8"}}) ==
        "may use only nodes n7, n8, which are not known");
  CHECK(ReasonOf(nodes, {}, {5, 1, 0, 0, {"n1", "n7"}}) ==
        "asks for 5 ranks of 1 CPU each, but all nodes that it may use together hold 4 of them");
  CHECK(ReasonOf(nodes, {Held(7, {2}, "n3")}, {3, 1, 0, 0, {"n3"}}) ==
        "waits for 3 CPUs; 2 of 4 are free on node n3");
}

TEST_CASE("what no node has is said") {
  std::vector<NodeCapacity> nodes = Nodes({4, 2});
  nodes[1].gpus = 1;
  CHECK(ReasonOf(nodes, {}, {1, 8}) == "asks for 8 CPUs a rank, but no node has more than 4");
  CHECK(ReasonOf(Nodes({4}), {}, {1, 1, 0, 2}) == "asks for 2 GPUs a rank, but no node has any");
  CHECK(ReasonOf(nodes, {}, {1, 1, 65 * kGiB}) ==
        "asks for 65.0 GiB of memory a rank, but no node has more than 64.0 GiB");
  CHECK(ReasonOf(nodes, {}, {1, 1, 87891 * kGiB}) ==
        "asks for 85.8 TiB of memory a rank, but no node has more than 64.0 GiB");
  CHECK(ReasonOf(nodes, {}, {1, 4, 0, 1}) ==
        "asks for 1 GPU and 4 CPUs a rank, but no node has all of that");
  CHECK(ReasonOf(nodes, {}, {1, 4, 0, 0, {"n2"}}) ==
        "asks for 4 CPUs a rank, but no node that it may use has more than 2");
  CHECK(ReasonOf(nodes, {}, {4, 2}) ==
        "asks for 4 ranks of 2 CPUs each, but all nodes together hold 3 of them");
  CHECK(ReasonOf({}, {}, {1}) == "there are no nodes");
  // One whose agent has not come yet may have it.
  std::vector<NodeCapacity> late = Nodes({4, 0});
  late[1].usable = false;
  late[1].unusable_why = "lost";
  CHECK(ReasonOf(late, {}, {1, 8}) == "too few nodes are left for it: node n2 is lost");
  late[1].gone = true;
  CHECK(ReasonOf(late, {}, {1, 8}) == "asks for 8 CPUs a rank, but no node has more than 4");
  CHECK(ReasonOf(late, {}, {1, 8, 0, 0, {"n1"}}) ==
        "asks for 8 CPUs a rank, but no node that it may use has more than 4");
  // Enough of everything, but nowhere together.
  CHECK(ReasonOf(Nodes({4, 4}), {Held(7, {3}, "n1"), Held(8, {3}, "n2")}, {1, 2}) ==
        "waits for room for 1 rank of 2 CPUs each; there is room for 0 now");
  CHECK(ReasonOf(Nodes({4}), {Held(7, {1, 0, 63 * kGiB}, "n1")}, {1, 1, 2 * kGiB}) ==
        "waits for 2.0 GiB of memory; 1.0 GiB of 64.0 GiB are free");
}

TEST_CASE("later jobs pass one that waits until it has lost its patience") {
  const std::vector<NodeCapacity> nodes = Nodes({4, 4});
  const std::vector<Holding> holding = {Held(7, {2}, "n1")};
  const std::vector<Waiting> queue = {Job(1, {8}), Job(2, {2})};
  const Decided before = Decide(nodes, holding, queue, {}, 600 * kSecondNs);
  CHECK(AllocationOf(before, 2) == "n1:2");
  CHECK(before.waits.at(1).reason == "waits for 8 CPUs; 4 of 8 are free");
  const Decided after = Decide(nodes, holding, queue, {}, 601 * kSecondNs);
  CHECK(after.allocations.empty());
  CHECK(after.waits.at(2).position == 2);
  CHECK(after.waits.at(2).reason == "job 1 has waited for more than 10 minutes and goes first");
  // A job of higher priority is not behind it.
  const Decided urgent = Decide(nodes, holding, {Job(1, {8}), Job(2, {2}, 1)}, {}, 601 * kSecondNs);
  CHECK(AllocationOf(urgent, 2) == "n1:2");
}

TEST_CASE("an impatient job holds only nodes that are of use to it") {
  std::vector<NodeCapacity> nodes = Nodes({4, 4, 1});
  const std::vector<Holding> holding = {Held(7, {1}, "n1"), Held(8, {1}, "n2")};
  const int64_t late = 5000 * kSecondNs;
  // n3 has no room for a rank of two CPUs.
  CHECK(AllocationOf(Decide(nodes, holding, {Job(1, {4, 2}), Job(2, {1})}, {}, late), 2) == "n3:1");
  const Waiting on_n1 = Job(1, {4, 1, 0, 0, {"n1"}});
  CHECK(AllocationOf(Decide(nodes, holding, {on_n1, Job(2, {3})}, {}, late), 2) == "n2:3");
  // What can never start keeps nobody waiting, nor what waits for a node to come back.
  CHECK(AllocationOf(Decide(nodes, holding, {Job(1, {20}), Job(2, {3})}, {}, late), 2) == "n1:3");
  nodes[1].usable = false;
  CHECK(AllocationOf(Decide(nodes, holding, {Job(1, {8}), Job(2, {3})}, {}, late), 2) == "n1:3");
}

TEST_CASE("requests beyond all bounds wait") {
  const Asks huge = {~0u, ~0u, ~uint64_t{0}, ~0u, {}};
  const Decided decision =
      Decide(Nodes({4}), {Held(7, huge, "n1")}, {Job(1, huge), Job(2, {1})}, {}, kSoon);
  CHECK(decision.allocations.empty());
  CHECK(decision.waits.at(2).reason == "waits for 1 CPU; 0 of 4 are free; job 1 is before it");
}

}  // namespace
}  // namespace trireme::coordinator
