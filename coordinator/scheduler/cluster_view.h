// The nodes as the scheduler sees them while it decides: what each has, and what of that is free.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "coordinator/scheduler/fitting.h"
#include "coordinator/scheduler/scheduler.h"

namespace trireme::coordinator {

// Index i is the same node everywhere.
struct ClusterView {
  std::vector<NodeCapacity> nodes;
  std::map<std::string, size_t> index;
  std::vector<Amount> capacity;
  std::vector<Amount> free;
  std::vector<uint64_t> held_by;  // the job that lost its patience and lets nobody pass; 0: none

  // Nodes that a job may use, be they usable or not.
  std::vector<bool> MayUse(const v1::ResourceRequest& request) const;
  std::vector<bool> OfThoseUsable(std::vector<bool> allowed) const;
  std::vector<bool> Without(std::vector<bool> allowed, std::span<const std::string> nodes) const;
  // Those usable that it may use; where it waits for others, but for those that could not start it,
  // if the others hold it once they are free.
  std::vector<bool> OpenTo(const Asked& asked) const;
};

ClusterView ViewOf(std::vector<NodeCapacity> nodes, const std::vector<Holding>& holding);

}  // namespace trireme::coordinator
