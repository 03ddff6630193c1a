// Small clusters and jobs for the tests of the scheduler.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/scheduler/scheduler.h"

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

// As the reconciler numbers them.
inline uint32_t KindOf(const v1::ResourceRequest& request) {
  static std::map<std::string, uint32_t> kinds;
  return kinds.try_emplace(request.SerializeAsString(), kinds.size() + 1).first->second;
}

inline Waiting Job(uint64_t id, const Asks& asks, int32_t priority = 0) {
  Waiting job;
  job.job_id = id;
  job.priority = priority;
  job.submitted_unix_ns = static_cast<int64_t>(id) * kSecondNs;
  job.waits_since_unix_ns = job.submitted_unix_ns;
  job.resources = Request(asks);
  job.kind = KindOf(job.resources);
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

// "n1:4 n2:2".
inline std::string Text(const std::vector<v1::NodeAllocation>& allocation) {
  std::string text;
  for (const v1::NodeAllocation& part : allocation) {
    text += (text.empty() ? "" : " ") + part.node() + ":" + std::to_string(part.ranks());
  }
  return text;
}

}  // namespace trireme::coordinator
