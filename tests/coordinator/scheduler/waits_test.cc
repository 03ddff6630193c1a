// Since when a job waits, who keeps whom off which nodes, and what those who wait are told of it.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "coordinator/scheduler/scheduler.h"
#include "tests/coordinator/scheduler/cluster_builder.h"

namespace trireme::coordinator {
namespace {

std::vector<NodeCapacity> Machines(const std::vector<uint32_t>& cpus) {
  std::vector<NodeCapacity> nodes;
  for (const uint32_t count : cpus) {
    nodes.push_back({"n" + std::to_string(nodes.size() + 1), count, 64 * kGiB, 0});
  }
  return nodes;
}

// All have lost their patience.
constexpr int64_t kLate = 5000 * kSecondNs;

std::string WaitOf(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding,
                   const std::vector<Waiting>& queue, uint64_t job, int64_t now = kLate) {
  const Decided decision = Decide(nodes, holding, queue, {}, now);
  const auto wait = decision.waits.find(job);
  return wait == decision.waits.end() ? "starts" : wait->second.reason;
}

void Drain(NodeCapacity& node, const std::string& why) {
  node.usable = false;
  node.unusable_why = why;
}

}  // namespace

TEST_CASE("patience is counted from when a job began to wait and the order from its submission") {
  const std::vector<NodeCapacity> nodes = Machines({4, 4});
  const std::vector<Holding> holding = {Held(7, {2}, "n1")};
  // Submitted first, it has run since and waits anew for 600 s from then on.
  Waiting again = Job(1, {8});
  again.waits_since_unix_ns = 1000 * kSecondNs;
  const std::vector<Waiting> queue = {Job(2, {2}), again};
  const int64_t patient = again.waits_since_unix_ns + 600 * kSecondNs;
  CHECK(WaitOf(nodes, holding, queue, 2, patient - 1) == "starts");
  CHECK(WaitOf(nodes, holding, queue, 2, patient) ==
        "job 1 has waited for more than 10 minutes and goes first");
  CHECK(WaitOf(nodes, holding, queue, 1, patient) == "waits for 8 CPUs; 6 of 8 are free");
  // Of two that would fit alone the one submitted first goes first, whoever waits longer.
  again.asked.resources.set_ranks(4);
  Waiting longer = Job(2, {4});
  longer.waits_since_unix_ns = 3 * kSecondNs;
  CHECK(WaitOf(Machines({4}), {}, {longer, again}, 1, patient - 1) == "starts");
}

TEST_CASE("who is kept off nodes is told of the job that keeps them from him") {
  const std::vector<NodeCapacity> nodes = Machines({4, 4});
  const Waiting on_n1 = Job(1, {4, 1, 0, 0, {"n1"}});
  const Waiting on_n2 = Job(2, {4, 1, 0, 0, {"n2"}});
  const std::string second = "job 2 has waited for more than 10 minutes and goes first";
  // There is no room on the first job's node.
  CHECK(WaitOf(nodes, {Held(7, {4}, "n1"), Held(8, {1}, "n2")}, {on_n1, on_n2, Job(3, {3})}, 3) ==
        second);
  // It may not use the first job's node.
  CHECK(WaitOf(nodes, {Held(7, {1}, "n1"), Held(8, {1}, "n2")},
               {on_n1, on_n2, Job(3, {3, 1, 0, 0, {"n2"}})}, 3) == second);
  // Both want all nodes: the one ahead has them.
  const std::vector<Holding> busy = {Held(7, {2}, "n1")};
  CHECK(WaitOf(nodes, busy, {Job(1, {8}), Job(2, {8}), Job(3, {2})}, 3) ==
        "job 1 has waited for more than 10 minutes and goes first");
  // It would not fit if nobody kept it off.
  CHECK(WaitOf(nodes, busy, {Job(1, {8}), Job(3, {7})}, 3) ==
        "waits for 7 CPUs; 6 of 8 are free; job 1 is before it");
}

TEST_CASE("what is left of a node that fills up is kept for the job that waits for it") {
  // Too little for one of its ranks now, but not when the node runs dry.
  CHECK(WaitOf(Machines({4}), {Held(7, {3}, "n1")}, {Job(1, {2, 2}), Job(2, {1})}, 2) ==
        "job 1 has waited for more than 10 minutes and goes first");
}

TEST_CASE("a job of no ranks takes the place of one") {
  CHECK(Text(Decide(Machines({4}), {}, {Job(1, {0, 3})}, {}, kLate).allocations[1]) == "n1:1");
  CHECK(WaitOf(Machines({4}), {Held(7, {2}, "n1")}, {Job(1, {0, 3})}, 1) ==
        "waits for 3 CPUs; 2 of 4 are free");
}

TEST_CASE("more than can be counted is taken all the same") {
  const Asks half{2, 0, uint64_t{1} << 63, 0, {}};  // twice that is nothing in 64 bits
  CHECK(WaitOf(Machines({4}), {Held(7, half, "n1")}, {Job(1, {1, 1, kGiB})}, 1) ==
        "waits for 1.0 GiB of memory; 0 MiB of 64.0 GiB are free");
}

TEST_CASE("only nodes that matter to a job are named to it") {
  std::vector<NodeCapacity> nodes = Machines({4, 1, 4});
  Drain(nodes[1], "drained");
  Drain(nodes[2], "lost");
  // n2 could not hold a rank of it.
  CHECK(WaitOf(nodes, {}, {Job(1, {3, 2})}, 1) == "too few nodes are left for it: node n3 is lost");
  // A node that nothing is known of, but that it may not use.
  nodes[2].cpus = 0;
  CHECK(WaitOf(nodes, {}, {Job(1, {1, 8, 0, 0, {"n1"}})}, 1) ==
        "asks for 8 CPUs a rank, but no node that it may use has more than 4");
}

TEST_CASE("of many nodes some are named and the others counted") {
  std::vector<NodeCapacity> nodes = Machines({4, 4, 4, 4});
  for (NodeCapacity& node : nodes) Drain(node, "lost");
  CHECK(WaitOf(nodes, {}, {Job(1, {1})}, 1) ==
        "too few nodes are left for it: node n1 is lost; node n2 is lost; node n3 is lost; and 1 "
        "more");
  CHECK(WaitOf(nodes, {}, {Job(1, {1, 1, 0, 0, {"n1", "n2", "n3"}})}, 1) ==
        "too few nodes are left for it: node n1 is lost; node n2 is lost; node n3 is lost");
  CHECK(WaitOf(nodes, {}, {Job(1, {1, 1, 0, 0, {"a", "b", "c", "d", "e", "f"}})}, 1) ==
        "may use only nodes a, b, c, d and 2 more, which are not known");
  CHECK(WaitOf(nodes, {}, {Job(1, {1, 1, 0, 0, {"a", "b", "c", "d"}})}, 1) ==
        "may use only nodes a, b, c, d, which are not known");
}

TEST_CASE("waits: each of a line is told why, with its own place") {
  std::vector<Waiting> queue;
  for (uint64_t id = 1; id <= 5; ++id) queue.push_back(Job(id, {1, 3}));
  const Decided decision = Decide(Machines({4}), {}, queue, {}, kSecondNs);
  CHECK(decision.allocations.contains(1));
  CHECK(decision.waits.at(2).reason == "waits for 3 CPUs; 1 of 4 are free");
  CHECK(decision.waits.at(3).reason == "waits for 3 CPUs; 1 of 4 are free; job 2 is before it");
  CHECK(decision.waits.at(5).position == 4);
  CHECK(decision.waits.at(5).reason == "waits for 3 CPUs; 1 of 4 are free; 3 jobs are before it");
}

TEST_CASE("waits: a decision looks at lines and not at all that wait") {
  Queue queue;
  for (uint64_t id = 1; id <= 6000; ++id) {
    Waiting job = Job(id, {2, static_cast<uint32_t>(1 + id % 3)}, static_cast<int32_t>(id % 2));
    job.asked.runs_ns = kSecondNs;
    queue.Add(job);
  }
  // Without an end to wait for, and with one: as many reservations more as there may be.
  for (const int64_t end : {int64_t{0}, kLate + kSecondNs}) {
    std::vector<Holding> holding = {Held(9000, {7}, "n1")};
    holding[0].ends_unix_ns = end;
    const Decision decision = Schedule(Machines({8}), holding, queue, {}, kLate);
    CHECK(decision.allocations.empty());
    CHECK(decision.reservations.size() == (end == 0 ? 0 : 50));
    CHECK(decision.looked_at == 6 + decision.reservations.size());
  }
  // Each that starts makes place for a look at the next of its line.
  const Decision starts = Schedule(Machines({60}), {}, queue, {}, kLate);
  CHECK(starts.allocations.size() > 10);
  CHECK(starts.looked_at <= 6 + 50 + starts.allocations.size());
}

TEST_CASE("waits: one kind that does not fit says nothing of another, nor of itself later") {
  const std::vector<Waiting> queue = {Job(1, {1, 9}), Job(2, {1, 6}), Job(3, {1, 6}),
                                      Job(4, {1, 2})};
  const Decided decision = Decide(Machines({8}), {}, queue, {}, kSecondNs);
  CHECK(decision.allocations.contains(2));
  CHECK(!decision.allocations.contains(3));
  CHECK(decision.allocations.contains(4));
  // With job 2 gone, job 3 fits.
  const std::vector<Waiting> rest = {queue[0], queue[2], queue[3]};
  CHECK(Decide(Machines({8}), {}, rest, {}, kSecondNs).allocations.contains(3));
}

TEST_CASE("ranks of a user beyond his cap wait for his own, and hold up nobody else") {
  std::vector<NodeCapacity> nodes(1);
  nodes[0] = {"n1", 16, 64 * kGiB, 0};
  SchedulingPolicy policy;
  policy.user_running_ranks = 8;
  const auto of = [](Waiting job, const std::string& user) {
    job.asked.user = user;
    return job;
  };
  std::vector<Holding> holding = {Held(1, {6}, "n1")};
  holding[0].user = "ann";
  const std::vector<Waiting> queue = {of(Job(2, {4}), "ann"), of(Job(3, {2}), "ann"),
                                      of(Job(4, {1}), "ann"), of(Job(5, {4}), "ben"),
                                      of(Job(6, {9}), "ben")};
  // Even those who have lost their patience keep nobody off the node.
  const Decided decision = Decide(nodes, holding, queue, policy, 1000 * kSecondNs);
  REQUIRE(decision.allocations.size() == 2);
  CHECK(decision.allocations.contains(3));
  CHECK(decision.allocations.contains(5));
  CHECK(decision.waits.at(2).reason ==
        "waits for other jobs of ann: 6 of the 8 ranks that one user may run at a time are in use, "
        "and it asks for 4 (--user-running-ranks of the daemon)");
  CHECK(decision.waits.at(4).reason ==
        "waits for other jobs of ann: 8 of the 8 ranks that one user may run at a time are in use, "
        "and it asks for 1 (--user-running-ranks of the daemon)");
  CHECK(decision.waits.at(6).reason ==
        "asks for 9 ranks, but ben may run 8 at a time (--user-running-ranks of the daemon)");
  // Whom no cap holds, runs as many as fit, beside a capped one of his kind.
  const Decided free =
      Decide(nodes, holding, {of(Job(2, {10}), "ann"), Job(3, {10})}, policy, 1000 * kSecondNs);
  CHECK(free.allocations.contains(3));
  CHECK(free.waits.contains(2));
  CHECK(Decide(nodes, holding, queue, {}, kSecondNs).allocations.contains(2));
}

}  // namespace trireme::coordinator
