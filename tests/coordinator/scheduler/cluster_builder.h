// Small clusters and jobs for the tests of the scheduler.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/scheduler/scheduler.h"
#include "coordinator/scheduler/waits.h"

namespace trireme::coordinator {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr int64_t kSecondNs = 1000000000;

struct Asks {
  uint32_t ranks = 1;
  uint32_t cpus = 1;
  uint64_t memory_bytes = 0;
  uint32_t gpus = 0;
  std::vector<std::string> nodes;
};

inline v1::ResourceRequest Request(const Asks& asks) {
  v1::ResourceRequest request;
  request.set_ranks(asks.ranks);
  request.set_cpus_per_rank(asks.cpus);
  request.set_memory_bytes_per_rank(asks.memory_bytes);
  request.set_gpus_per_rank(asks.gpus);
  for (const std::string& node : asks.nodes) request.add_nodes(node);
  return request;
}

inline Waiting Job(uint64_t id, const Asks& asks, int32_t priority = 0) {
  Waiting job;
  job.job_id = id;
  job.priority = priority;
  job.submitted_unix_ns = static_cast<int64_t>(id) * kSecondNs;
  job.waits_since_unix_ns = job.submitted_unix_ns;
  job.asked.resources = Request(asks);
  return job;
}

inline Holding Held(uint64_t id, const Asks& asks, const std::string& node) {
  Holding held;
  held.job_id = id;
  held.resources = Request(asks);
  v1::NodeAllocation& part = held.allocation.emplace_back();
  part.set_node(node);
  part.set_ranks(asks.ranks);
  return held;
}

// A decision, and what all that wait are told of it.
struct Decided {
  struct Wait {
    uint32_t position = 0;  // 1 is next
    std::string reason;
  };
  std::map<uint64_t, std::vector<v1::NodeAllocation>> allocations;
  std::map<uint64_t, Reservation> reservations;
  std::map<uint64_t, Wait> waits;
};

// `before`: the reservations of the decision before, of jobs that still wait.
inline Decided Decide(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding,
                      const std::vector<Waiting>& waiting, const SchedulingPolicy& policy,
                      int64_t now_unix_ns, const std::map<uint64_t, Reservation>& before = {}) {
  Queue queue;
  std::map<QueueKey, uint64_t> lines;
  for (const Waiting& job : waiting) {
    const uint64_t line = queue.Add(job);
    lines[queue.KeyOf(job.job_id)] = line;
  }
  queue.SetReservations(before);
  Decision decision = Schedule(nodes, holding, queue, policy, now_unix_ns);
  Decided decided{std::move(decision.allocations), std::move(decision.reservations), {}};
  QueuePlace place;
  for (const auto& [key, line] : lines) {
    if (decided.allocations.contains(key.job_id)) continue;
    decided.waits[key.job_id] = {static_cast<uint32_t>(place.before + 1),
                                 decision.waits->ReasonOf(key.job_id, line, place)};
    place = {place.before + 1, key.job_id};
  }
  return decided;
}

// "n1:4 n2:2".
inline std::string Text(const std::vector<v1::NodeAllocation>& allocation) {
  std::string text;
  for (const v1::NodeAllocation& part : allocation) {
    text += (text.empty() ? "" : " ") + part.node() + ":" + std::to_string(part.ranks());
  }
  return text;
}

}  // namespace trireme::coordinator
