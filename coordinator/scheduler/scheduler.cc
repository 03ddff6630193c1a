// In the order of the queue, each job takes what fits it. One that has waited for too long takes
// nothing either, but keeps those behind it off the nodes that it may use, so that they run dry.
#include "coordinator/scheduler/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "coordinator/scheduler/cluster_view.h"

namespace trireme::coordinator {
namespace {

std::vector<const Waiting*> InOrder(const std::vector<Waiting>& waiting) {
  std::vector<const Waiting*> order;
  order.reserve(waiting.size());
  for (const Waiting& job : waiting) order.push_back(&job);
  std::sort(order.begin(), order.end(), [](const Waiting* a, const Waiting* b) {
    return std::tuple(-int64_t{a->priority}, a->submitted_unix_ns, a->job_id) <
           std::tuple(-int64_t{b->priority}, b->submitted_unix_ns, b->job_id);
  });
  return order;
}

std::vector<bool> NotHeld(std::vector<bool> allowed, const ClusterView& cluster) {
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (cluster.held_by[i] != 0) allowed[i] = false;
  }
  return allowed;
}

// The first of the jobs that keep this one off nodes on which it would fit now.
uint64_t HeldBackBy(const Amount& rank, const std::vector<bool>& usable,
                    const ClusterView& cluster) {
  for (size_t i = 0; i < usable.size(); ++i) {
    if (usable[i] && cluster.held_by[i] != 0 && RoomFor(rank, cluster.free[i], 1) > 0) {
      return cluster.held_by[i];
    }
  }
  return 0;
}

// Nobody behind `job` passes it any more. One that would not fit if all others were gone holds
// nothing: nodes would run dry for nothing.
void HoldNodes(const Waiting& job, uint64_t ranks, const std::vector<bool>& usable,
               ClusterView& cluster) {
  const Amount rank = AmountOfRank(job.resources);
  if (RoomInAll(rank, ranks, cluster.capacity, usable) < ranks) return;
  for (size_t i = 0; i < usable.size(); ++i) {
    const bool of_use = usable[i] && RoomFor(rank, cluster.capacity[i], 1) > 0;
    if (of_use && cluster.held_by[i] == 0) cluster.held_by[i] = job.job_id;
  }
}

}  // namespace

Decision Schedule(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding,
                  const std::vector<Waiting>& waiting, const SchedulingPolicy& policy,
                  int64_t now_unix_ns) {
  ClusterView cluster = ViewOf(nodes, holding);
  const int64_t patience_ns = std::chrono::nanoseconds(policy.patience).count();
  Decision decision;
  std::vector<Waiter> waiters;
  for (const Waiting* job : InOrder(waiting)) {
    const Amount rank = AmountOfRank(job->resources);
    const uint64_t ranks = std::max<uint64_t>(1, job->resources.ranks());
    const std::vector<bool> usable = cluster.OfThoseUsable(cluster.MayUse(job->resources));
    const std::vector<Share> shares = Fit(rank, ranks, cluster.free, NotHeld(usable, cluster));
    if (shares.empty()) {
      const bool would_fit = RoomInAll(rank, ranks, cluster.free, usable) >= ranks;
      waiters.push_back({job, would_fit ? HeldBackBy(rank, usable, cluster) : 0});
      if (now_unix_ns - job->waits_since_unix_ns >= patience_ns) {
        HoldNodes(*job, ranks, usable, cluster);
      }
      continue;
    }
    std::vector<v1::Place>& places = decision.places[job->job_id];
    for (const Share& share : shares) {
      v1::Place& place = places.emplace_back();
      place.set_node(nodes[share.node].name);
      place.set_ranks(static_cast<uint32_t>(share.ranks));
      cluster.free[share.node] = Without(cluster.free[share.node], rank, share.ranks);
    }
  }
  QueuePlace place;
  for (const Waiter& waiter : waiters) {
    decision.waits[waiter.job->job_id] = {static_cast<uint32_t>(place.before + 1),
                                          ReasonOf(waiter, cluster, place, policy)};
    ++place.before;
    place.last_before = waiter.job->job_id;
  }
  return decision;
}

ClusterView ViewOf(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding) {
  ClusterView view;
  view.nodes = &nodes;
  for (const NodeCapacity& node : nodes) {
    view.index.emplace(node.name, view.capacity.size());
    view.capacity.push_back({node.cpus, node.memory_bytes, node.gpus});
  }
  view.free = view.capacity;
  view.held_by.assign(nodes.size(), 0);
  for (const Holding& held : holding) {
    for (const v1::Place& place : held.places) {
      const auto node = view.index.find(place.node());
      if (node == view.index.end()) continue;  // removed from the cluster meanwhile
      Amount& free = view.free[node->second];
      free = Without(free, AmountOfRank(held.resources), place.ranks());
    }
  }
  return view;
}

std::vector<bool> ClusterView::MayUse(const v1::ResourceRequest& request) const {
  if (request.nodes().empty()) return std::vector<bool>(nodes->size(), true);
  std::vector<bool> allowed(nodes->size(), false);
  for (const std::string& name : request.nodes()) {
    if (const auto found = index.find(name); found != index.end()) allowed[found->second] = true;
  }
  return allowed;
}

std::vector<bool> ClusterView::OfThoseUsable(std::vector<bool> allowed) const {
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (!(*nodes)[i].usable) allowed[i] = false;
  }
  return allowed;
}

}  // namespace trireme::coordinator
