// In the order of the queue, each job takes what fits it. One that has waited for too long takes
// nothing either, but keeps those behind it off the nodes that it may use, so that they run dry.
#include "coordinator/scheduler/scheduler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "coordinator/scheduler/cluster_view.h"

namespace trireme::coordinator {
namespace {

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

// What is known of the jobs of one kind, of which one did not fit. It stays so: in one pass there
// is ever less room.
struct Refused {
  uint64_t held_back_by = 0;
  bool holds = false;  // HoldNodes was called of one of them
};

class Pass {
 public:
  Pass(ClusterView& cluster, const std::vector<Holding>& holding, const SchedulingPolicy& policy,
       int64_t now_unix_ns)
      : cluster_(cluster),
        patience_ns_(std::chrono::nanoseconds(policy.patience).count()),
        user_ranks_(policy.user_running_ranks),
        now_unix_ns_(now_unix_ns) {
    for (const Holding& held : holding) {
      for (const v1::NodeAllocation& part : held.allocation) Count(held.user, part.ranks());
    }
  }

  // Empty: it waits.
  std::vector<Share> Look(const Waiting& job) {
    const uint64_t ranks = std::max<uint64_t>(1, job.resources.ranks());
    // It waits for its own user alone, so it keeps nobody off anything.
    if (OverCap(job.user, ranks)) {
      waiters_.push_back({&job, 0, running_[job.user]});
      return {};
    }
    std::vector<Share> shares = Fitting(job, ranks);
    if (!shares.empty()) Count(job.user, ranks);
    return shares;
  }
  const std::vector<Waiter>& waiters() const { return waiters_; }

 private:
  std::vector<Share> Fitting(const Waiting& job, uint64_t ranks) {
    if (const auto known = kinds_.find(job.kind); known != kinds_.end() && job.kind != 0) {
      Wait(job, known->second);
      return {};
    }
    const Amount rank = AmountOfRank(job.resources);
    const std::vector<bool> usable = cluster_.OfThoseUsable(cluster_.MayUse(job.resources));
    std::vector<Share> shares = Fit(rank, ranks, cluster_.free, NotHeld(usable, cluster_));
    if (!shares.empty()) return shares;
    const bool would_fit = RoomInAll(rank, ranks, cluster_.free, usable) >= ranks;
    Wait(job, kinds_[job.kind] = {would_fit ? HeldBackBy(rank, usable, cluster_) : 0, false});
    return {};
  }

  void Count(const std::string& user, uint64_t ranks) {
    if (user_ranks_ > 0 && !user.empty()) running_[user] += ranks;
  }
  bool OverCap(const std::string& user, uint64_t ranks) const {
    if (user_ranks_ == 0 || user.empty()) return false;
    const auto found = running_.find(user);
    return ranks + (found == running_.end() ? 0 : found->second) > user_ranks_;
  }

  void Wait(const Waiting& job, Refused& kind) {
    waiters_.push_back({&job, kind.held_back_by, std::nullopt});
    if (now_unix_ns_ - job.waits_since_unix_ns < patience_ns_ || std::exchange(kind.holds, true)) {
      return;
    }
    const std::vector<bool> usable = cluster_.OfThoseUsable(cluster_.MayUse(job.resources));
    HoldNodes(job, std::max<uint64_t>(1, job.resources.ranks()), usable, cluster_);
  }

  ClusterView& cluster_;
  const int64_t patience_ns_;
  const uint64_t user_ranks_;
  const int64_t now_unix_ns_;
  std::unordered_map<std::string, uint64_t> running_;  // ranks, of users whom the cap holds
  std::unordered_map<uint32_t, Refused> kinds_;
  std::vector<Waiter> waiters_;
};

}  // namespace

Decision Schedule(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding,
                  const std::vector<Waiting>& waiting, const SchedulingPolicy& policy,
                  int64_t now_unix_ns) {
  std::vector<const Waiting*> queue;
  queue.reserve(waiting.size());
  for (const Waiting& job : waiting) queue.push_back(&job);
  std::sort(queue.begin(), queue.end(),
            [](const Waiting* a, const Waiting* b) { return KeyOf(*a) < KeyOf(*b); });
  return Schedule(nodes, holding, queue, policy, now_unix_ns);
}

Decision Schedule(const std::vector<NodeCapacity>& nodes, const std::vector<Holding>& holding,
                  const std::vector<const Waiting*>& queue, const SchedulingPolicy& policy,
                  int64_t now_unix_ns) {
  ClusterView cluster = ViewOf(nodes, holding);
  Decision decision;
  Pass pass(cluster, holding, policy, now_unix_ns);
  for (const Waiting* job : queue) {
    const std::vector<Share> shares = pass.Look(*job);
    if (shares.empty()) continue;
    const Amount rank = AmountOfRank(job->resources);
    std::vector<v1::NodeAllocation>& allocation = decision.allocations[job->job_id];
    for (const Share& share : shares) {
      v1::NodeAllocation& part = allocation.emplace_back();
      part.set_node(nodes[share.node].name);
      part.set_ranks(static_cast<uint32_t>(share.ranks));
      cluster.free[share.node] = Without(cluster.free[share.node], rank, share.ranks);
    }
  }
  QueuePlace place;
  for (const Waiter& waiter : pass.waiters()) {
    if (place.before == policy.most_reasons) break;
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
    for (const v1::NodeAllocation& part : held.allocation) {
      const auto node = view.index.find(part.node());
      if (node == view.index.end()) continue;  // removed from the cluster meanwhile
      Amount& free = view.free[node->second];
      free = Without(free, AmountOfRank(held.resources), part.ranks());
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
