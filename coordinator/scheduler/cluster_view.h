// The nodes as the scheduler sees them while it decides: what each has, and what of that is free.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/scheduler/fitting.h"
#include "coordinator/scheduler/scheduler.h"

namespace trireme::coordinator {

// Index i is the same node everywhere.
struct ClusterView {
  const std::vector<NodeCapacity>* nodes = nullptr;
  std::map<std::string, size_t> index;
  std::vector<Amount> capacity;
  std::vector<Amount> free;
  std::vector<uint64_t> held_by;  // the job that lost its patience and lets nobody pass; 0: none

  // Nodes that a job may use, be they usable or not.
  std::vector<bool> MayUse(const v1::ResourceRequest& request) const;
  std::vector<bool> OfThoseUsable(std::vector<bool> allowed) const;
};

ClusterView ViewOf(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding);

// A job that does not start.
struct Waiter {
  const Waiting* job = nullptr;
  uint64_t held_back_by = 0;  // it would fit, but for this job; 0: it would not
  // Not asked whether it fits: with so many ranks of its user it would be more than he may run.
  std::optional<uint64_t> ranks_of_user = std::nullopt;
  uint64_t in_the_way_of = 0;  // likewise: it would run on when this one is to start
  int64_t then_ns = 0;         // from now until that
  uint64_t starts_after = 0;   // its own reservation: the job that ends then; 0: not known
  int64_t starts_in_ns = 0;    // 0: it has none
};

// Why it does not start; one line. `before`: the waiting jobs ahead of it, `last_before` the one
// directly ahead.
struct QueuePlace {
  size_t before = 0;
  uint64_t last_before = 0;
};
std::string ReasonOf(const Waiter& waiter, const ClusterView& cluster, const QueuePlace& place,
                     const SchedulingPolicy& policy);

}  // namespace trireme::coordinator
