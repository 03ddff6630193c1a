// What holds of every decision, whatever the cluster and the queue; and that nobody starves.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "coordinator/scheduler/scheduler.h"
#include "tests/coordinator/scheduler/cluster_builder.h"
#include "tests/sanitizer.h"

namespace trireme::coordinator {
namespace {

struct Scene {
  std::vector<NodeCapacity> nodes;
  std::vector<Holding> holding;
  std::vector<Waiting> waiting;
};

class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}
  uint32_t Below(uint64_t bound) { return static_cast<uint32_t>(random_() % bound); }

  Asks SomeAsks(size_t nodes) {
    Asks asks{1 + Below(12), Below(5), Below(4) * kGiB, Below(4) == 0 ? Below(3) : 0, {}};
    if (Below(4) == 0) {
      for (uint32_t i = 0; i <= Below(3); ++i) {
        asks.nodes.push_back("n" + std::to_string(1 + Below(nodes + 1)));
      }
    }
    return asks;
  }

  // jobs that hold an allocation come from an earlier decision: they fit.
  Scene SomeScene() {
    Scene scene;
    const uint32_t nodes = Below(7);
    for (uint32_t i = 0; i < nodes; ++i) {
      scene.nodes.push_back(
          {"n" + std::to_string(i + 1), Below(17), Below(33) * kGiB, Below(2) * Below(5)});
    }
    scene.waiting = SomeJobs(1, nodes);
    const Decided first = Decide(scene.nodes, {}, scene.waiting, {}, 0);
    for (const Waiting& job : scene.waiting) {
      const auto found = first.allocations.find(job.job_id);
      if (found != first.allocations.end() && Below(2) == 0) {
        scene.holding.push_back({job.job_id, job.asked.resources, found->second});
      }
    }
    for (NodeCapacity& node : scene.nodes) {
      node.usable = Below(5) != 0;
      if (!node.usable) node.unusable_why = Below(2) == 0 ? "lost" : "";
    }
    scene.waiting = SomeJobs(100, nodes);
    return scene;
  }

 private:
  std::vector<Waiting> SomeJobs(uint64_t first_id, size_t nodes) {
    std::vector<Waiting> jobs;
    const uint32_t count = Below(12);
    for (uint32_t i = 0; i < count; ++i) {
      Waiting job = Job(first_id + i, SomeAsks(nodes), static_cast<int32_t>(Below(3)) - 1);
      job.submitted_unix_ns = Below(5) * kSecondNs;
      job.waits_since_unix_ns = job.submitted_unix_ns + Below(1000) * kSecondNs;
      jobs.push_back(job);
    }
    std::shuffle(jobs.begin(), jobs.end(), random_);
    return jobs;
  }
  std::mt19937_64 random_;
};

// Resources that are taken, counted without the code under test.
struct Taken {
  uint64_t cpus = 0, memory_bytes = 0, gpus = 0;
};

void Count(const v1::ResourceRequest& each, const std::vector<v1::NodeAllocation>& allocation,
           std::map<std::string, Taken>& taken) {
  for (const v1::NodeAllocation& part : allocation) {
    Taken& node = taken[part.node()];
    node.cpus += uint64_t{each.cpus_per_rank()} * part.ranks();
    node.memory_bytes += each.memory_bytes_per_rank() * part.ranks();
    node.gpus += uint64_t{each.gpus_per_rank()} * part.ranks();
  }
}

bool MayUse(const v1::ResourceRequest& request, const std::string& node) {
  return request.nodes().empty() ||
         std::find(request.nodes().begin(), request.nodes().end(), node) != request.nodes().end();
}

// How many ranks of `request` one node still takes.
uint64_t Room(const NodeCapacity& node, const Taken& taken, const v1::ResourceRequest& request) {
  if (!node.usable || !MayUse(request, node.name)) return 0;
  uint64_t room = 0;
  while (room < request.ranks() && taken.cpus + (room + 1) * request.cpus_per_rank() <= node.cpus &&
         taken.memory_bytes + (room + 1) * request.memory_bytes_per_rank() <= node.memory_bytes &&
         taken.gpus + (room + 1) * request.gpus_per_rank() <= node.gpus) {
    ++room;
  }
  return room;
}

// The fewest nodes that hold all ranks, by trying every set; 0: none does.
size_t FewestNodes(const Scene& scene, std::map<std::string, Taken> taken,
                   const v1::ResourceRequest& request) {
  size_t fewest = 0;
  for (uint32_t set = 1; set < (1u << scene.nodes.size()); ++set) {
    uint64_t room = 0;
    for (size_t i = 0; i < scene.nodes.size(); ++i) {
      if ((set >> i & 1) != 0) room += Room(scene.nodes[i], taken[scene.nodes[i].name], request);
    }
    const auto size = static_cast<size_t>(__builtin_popcount(set));
    if (room >= request.ranks() && (fewest == 0 || size < fewest)) fewest = size;
  }
  return fewest;
}

void CheckDecision(const Scene& scene, const Decided& decision) {
  std::map<std::string, Taken> taken;
  for (const Holding& held : scene.holding) Count(held.resources, held.allocation, taken);
  std::set<uint32_t> positions;
  for (const Waiting& job : scene.waiting) {
    const auto allocation = decision.allocations.find(job.job_id);
    const auto wait = decision.waits.find(job.job_id);
    REQUIRE((allocation == decision.allocations.end()) != (wait == decision.waits.end()));
    if (wait != decision.waits.end()) {
      positions.insert(wait->second.position);
      CHECK(!wait->second.reason.empty());
      CHECK(wait->second.reason.find('\n') == std::string::npos);
      continue;
    }
    uint32_t ranks = 0;
    std::set<std::string> named;
    for (const v1::NodeAllocation& part : allocation->second) {
      CHECK(part.ranks() > 0);
      ranks += part.ranks();
      CHECK(named.insert(part.node()).second);
      CHECK(MayUse(job.asked.resources, part.node()));
      for (const NodeCapacity& node : scene.nodes) {
        if (node.name == part.node()) CHECK(node.usable);
      }
    }
    CHECK(ranks == job.asked.resources.ranks());
    Count(job.asked.resources, allocation->second, taken);
  }
  CHECK(decision.allocations.size() + decision.waits.size() == scene.waiting.size());
  CHECK(positions.size() == decision.waits.size());
  if (!positions.empty()) CHECK(*positions.rbegin() == positions.size());
  for (const NodeCapacity& node : scene.nodes) {
    CHECK(taken[node.name].cpus <= node.cpus);
    CHECK(taken[node.name].memory_bytes <= node.memory_bytes);
    CHECK(taken[node.name].gpus <= node.gpus);
  }
}

// In the order of the queue each job gets the fewest nodes there are, and only what fits nowhere
// waits.
void CheckNothingIdle(const Scene& scene, const Decided& decision) {
  std::map<std::string, Taken> taken;
  for (const Holding& held : scene.holding) Count(held.resources, held.allocation, taken);
  std::vector<Waiting> order = scene.waiting;
  std::sort(order.begin(), order.end(), [](const Waiting& a, const Waiting& b) {
    if (a.priority != b.priority) return a.priority > b.priority;
    if (a.submitted_unix_ns != b.submitted_unix_ns) {
      return a.submitted_unix_ns < b.submitted_unix_ns;
    }
    return a.job_id < b.job_id;
  });
  uint32_t position = 0;
  for (const Waiting& job : order) {
    const auto allocation = decision.allocations.find(job.job_id);
    const size_t fewest = FewestNodes(scene, taken, job.asked.resources);
    CHECK(fewest == (allocation == decision.allocations.end() ? 0 : allocation->second.size()));
    if (allocation != decision.allocations.end()) {
      Count(job.asked.resources, allocation->second, taken);
    } else {
      CHECK(decision.waits.at(job.job_id).position == ++position);
    }
  }
}

TEST_CASE("no decision takes more than there is or leaves idle what fits") {
  Chance chance(7);
  int started = 0, waited = 0, held_back = 0;
  for (int i = 0; i < 3000; ++i) {
    const Scene scene = chance.SomeScene();
    INFO("scene " << i);
    const Decided eager = Decide(scene.nodes, scene.holding, scene.waiting,
                                 {std::chrono::hours(100)}, 1000 * kSecondNs);
    CheckDecision(scene, eager);
    CheckNothingIdle(scene, eager);
    const Decided fair = Decide(scene.nodes, scene.holding, scene.waiting, {}, 1000 * kSecondNs);
    CheckDecision(scene, fair);
    started += static_cast<int>(eager.allocations.size());
    waited += static_cast<int>(eager.waits.size());
    for (const auto& [job, wait] : fair.waits) {
      if (wait.reason.find("goes first") != std::string::npos) ++held_back;
    }
  }
  CHECK(started > 1000);
  CHECK(waited > 1000);
  CHECK(held_back > 100);
}

// Small jobs without end, and one that needs the whole cluster. The tick at which it starts; 0:
// never.
int StartOfLargeJob(const SchedulingPolicy& policy) {
  constexpr int kTicks = 500;
  constexpr int64_t kTickNs = 60 * kSecondNs;
  std::vector<NodeCapacity> nodes;
  for (int i = 0; i < 4; ++i) nodes.push_back({"n" + std::to_string(i), 4, 64 * kGiB, 0});
  Chance chance(5);
  std::map<uint64_t, int> ends;  // of those that run
  std::vector<Holding> holding;
  std::vector<Waiting> waiting;
  uint64_t next_id = 2;
  for (int tick = 1; tick <= kTicks; ++tick) {
    const int64_t now = tick * kTickNs;
    holding.erase(std::remove_if(holding.begin(), holding.end(),
                                 [&](const Holding& held) { return ends[held.job_id] <= tick; }),
                  holding.end());
    while (waiting.size() < 30) {
      // The first waits for ever and must not keep the others waiting; the large one comes at 20.
      const bool large = next_id == 200;
      Waiting job = Job(next_id, {next_id == 2 ? 17 : large ? 16 : 1 + chance.Below(3)});
      job.submitted_unix_ns = job.waits_since_unix_ns = now;
      waiting.push_back(job);
      ++next_id;
    }
    const Decided decision = Decide(nodes, holding, waiting, policy, now);
    if (decision.allocations.count(200) > 0) return tick;
    for (const auto& [id, allocation] : decision.allocations) {
      const auto job = std::find_if(waiting.begin(), waiting.end(),
                                    [id = id](const Waiting& one) { return one.job_id == id; });
      holding.push_back({id, job->asked.resources, allocation});
      ends[id] = tick + 1 + static_cast<int>(chance.Below(5));
      waiting.erase(job);
    }
  }
  return 0;
}

TEST_CASE("a large job starts in an endless queue of small ones and would not without patience") {
  CHECK(StartOfLargeJob({}) > 0);
  CHECK(StartOfLargeJob({std::chrono::hours(1000)}) == 0);
}

// A long queue of few kinds, some of whose jobs have waited before, with time limits or without.
std::vector<Waiting> LongQueue(Chance& chance) {
  std::vector<Waiting> queue;
  for (uint64_t id = 1; id <= 60; ++id) {
    Waiting job = Job(id, {1 + 3 * chance.Below(3), 2}, static_cast<int32_t>(chance.Below(2)));
    job.submitted_unix_ns = job.waits_since_unix_ns = chance.Below(1000) * kSecondNs;
    if (chance.Below(4) == 0) job.waits_since_unix_ns += chance.Below(3) * 300 * kSecondNs;
    job.asked.runs_ns = chance.Below(3) * 400 * kSecondNs;
    if (chance.Below(4) == 0) {
      for (uint32_t node = 1 + chance.Below(3); node <= 4; node += 1 + chance.Below(3)) {
        job.asked.avoids.push_back("n" + std::to_string(node));
      }
      job.asked.waits_for_others = chance.Below(2) == 0;
    }
    queue.push_back(job);
  }
  return queue;
}

std::vector<Holding> SomeHolding(Chance& chance) {
  std::vector<Holding> holding;
  for (uint64_t id = 1000; id < 1004; ++id) {
    holding.push_back(Held(id, {1 + chance.Below(4), 1}, "n" + std::to_string(id - 999)));
    const int64_t runs = chance.Below(3) * 300 * kSecondNs;
    holding.back().ends_unix_ns = runs == 0 ? 0 : 1000 * kSecondNs + runs;
  }
  return holding;
}

TEST_CASE("a line of equal jobs is decided on as each of them alone would be") {
  const std::vector<NodeCapacity> nodes = {{"n1", 4, 64 * kGiB, 0},
                                           {"n2", 8, 64 * kGiB, 0},
                                           {"n3", 8, 64 * kGiB, 0},
                                           {"n4", 12, 64 * kGiB, 0}};
  Chance chance(11);
  int started = 0, due = 0, reserved = 0, held_back = 0;
  for (int i = 0; i < tests::Tries(1000); ++i) {
    INFO("scene " << i);
    std::vector<Waiting> queue = LongQueue(chance);
    std::vector<Holding> holding = SomeHolding(chance);
    SchedulingPolicy policy{std::chrono::seconds(100 + chance.Below(900))};
    policy.most_reservations = chance.Below(8);
    std::map<uint64_t, Reservation> before;
    for (int64_t now = 1000 * kSecondNs; now < 2500 * kSecondNs;
         now += (1 + chance.Below(400)) * kSecondNs) {
      policy.in_order = chance.Below(20) == 0;
      // Where no cap holds, users are of no account, but each has lines of his own.
      std::vector<Waiting> alone = queue;
      for (Waiting& job : alone) job.asked.user = std::to_string(job.job_id);
      const Decided lines = Decide(nodes, holding, queue, policy, now, before);
      const Decided each = Decide(nodes, holding, alone, policy, now, before);
      REQUIRE(lines.allocations.size() == each.allocations.size());
      for (const auto& [id, allocation] : each.allocations) {
        REQUIRE(lines.allocations.contains(id));
        CHECK(Text(lines.allocations.at(id)) == Text(allocation));
        due += before.contains(id) && before.at(id).start_unix_ns <= now ? 1 : 0;
      }
      REQUIRE(lines.reservations.size() == each.reservations.size());
      for (const auto& [id, reservation] : each.reservations) {
        REQUIRE(lines.reservations.contains(id));
        CHECK(lines.reservations.at(id).start_unix_ns == reservation.start_unix_ns);
        CHECK(Text(lines.reservations.at(id).allocation) == Text(reservation.allocation));
      }
      for (const auto& [id, wait] : each.waits) {
        CHECK(lines.waits.at(id).reason == wait.reason);
        held_back += wait.reason.find("goes first") != std::string::npos ? 1 : 0;
      }
      started += static_cast<int>(each.allocations.size());
      reserved += static_cast<int>(each.reservations.size());
      before = each.reservations;
      std::erase_if(holding, [&](const Holding& held) {
        return held.ends_unix_ns != 0 && held.ends_unix_ns <= now;
      });
      for (const auto& [id, allocation] : each.allocations) {
        const auto job = std::find_if(queue.begin(), queue.end(),
                                      [id = id](const Waiting& one) { return one.job_id == id; });
        const int64_t runs = job->asked.runs_ns;
        holding.push_back({id, job->asked.resources, allocation, "", runs == 0 ? 0 : now + runs});
        queue.erase(job);
      }
    }
  }
  CHECK(started > tests::Tries(5000));
  CHECK(due > tests::Tries(100));
  CHECK(reserved > tests::Tries(5000));
  CHECK(held_back > tests::Tries(1000));
}

}  // namespace
}  // namespace trireme::coordinator
