// In the order of the queue, each job takes what fits it now and leaves what reservations of those
// before it need then. One that waits gets a reservation, where time limits tell when it can start;
// else, once it has waited for too long, it keeps those behind it off the nodes that it may use.
#include "coordinator/scheduler/scheduler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "coordinator/scheduler/cluster_view.h"
#include "coordinator/scheduler/timeline.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kLooksOfReservation = 4;

std::vector<v1::NodeAllocation> AllocationOf(const std::vector<Share>& shares,
                                             const ClusterView& cluster) {
  std::vector<v1::NodeAllocation> allocation;
  for (const Share& share : shares) {
    v1::NodeAllocation& part = allocation.emplace_back();
    part.set_node((*cluster.nodes)[share.node].name);
    part.set_ranks(static_cast<uint32_t>(share.ranks));
  }
  return allocation;
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

// What is known of the jobs of one kind, of which one did not fit. It stays so: in one pass there
// is ever less room.
struct Refused {
  uint64_t held_back_by = 0;
  uint64_t in_the_way_of = 0;
  bool holds = false;             // HoldNodes was called of one of them
  int64_t starts_not_before = 0;  // the last reservation of one of them; kNoEnd: there is none
};

// What of a request is the same in each look at it.
struct Need {
  Amount rank;
  uint64_t ranks = 1;
  int64_t runs_ns = kNoEnd;
};
Need NeedOf(const Waiting& job) {
  return {AmountOfRank(job.resources), std::max<uint64_t>(1, job.resources.ranks()),
          job.runs_ns > 0 ? job.runs_ns : kNoEnd};
}

class Pass {
 public:
  Pass(ClusterView& cluster, const std::vector<Holding>& holding, const SchedulingPolicy& policy,
       int64_t now_unix_ns)
      : cluster_(cluster),
        policy_(policy),
        patience_ns_(std::chrono::nanoseconds(policy.patience).count()),
        user_ranks_(policy.user_running_ranks),
        now_unix_ns_(now_unix_ns),
        timeline_(cluster.capacity) {
    for (const Holding& held : holding) {
      for (const v1::NodeAllocation& part : held.allocation) Count(held.user, part.ranks());
      // One that runs on beyond its end does so a moment more.
      const int64_t end = std::max(held.ends_unix_ns, now_unix_ns + 1);
      Take(held.job_id, AmountOfRank(held.resources), SharesOf(held.allocation),
           {now_unix_ns, held.ends_unix_ns == 0 ? kNoEnd : end});
    }
  }

  // Empty: it waits.
  std::vector<Share> Look(const Waiting& job) {
    const uint64_t ranks = std::max<uint64_t>(1, job.resources.ranks());
    // It waits for its own user alone, so it keeps nobody off anything.
    if (OverCap(job.user, ranks)) {
      waiters_.push_back({.job = &job, .ranks_of_user = running_[job.user]});
      return {};
    }
    if (policy_.in_order && first_waiter_ != 0) {
      waiters_.push_back({.job = &job, .held_back_by = first_waiter_});
      return {};
    }
    std::vector<Share> shares = Fitting(job);
    if (shares.empty()) {
      if (first_waiter_ == 0) first_waiter_ = job.job_id;
    } else {
      Count(job.user, ranks);
    }
    return shares;
  }
  const std::vector<Waiter>& waiters() const { return waiters_; }
  std::map<uint64_t, Reservation> TakeReservations() { return std::move(reservations_); }

 private:
  struct Reserved {
    uint64_t job = 0;
    int64_t start = 0;
    std::vector<Share> shares;
  };

  std::vector<Share> Fitting(const Waiting& job) {
    const auto known = kinds_.find(job.kind);
    const bool due = IsDue(job.reservation);
    if (known != kinds_.end() && job.kind != 0 && !due) {
      Wait(job, known->second);
      return {};
    }
    const Need need = NeedOf(job);
    const std::vector<bool> usable = cluster_.OfThoseUsable(cluster_.MayUse(job.resources));
    const std::vector<bool> open = NotHeld(usable, cluster_);
    // Elsewhere it might be in the way of others' reservations.
    if (due && StillHolds(job, need, open, now_unix_ns_)) {
      return Start(job, need, SharesOf(job.reservation.allocation));
    }
    // What is free now is the most that it may have: without it nothing else is looked at.
    const bool room = RoomInAll(need.rank, need.ranks, cluster_.free, open) >= need.ranks;
    if (room) {
      const std::vector<Amount> there =
          reserved_.empty() ? cluster_.free : timeline_.Least(SpanOf(now_unix_ns_, need.runs_ns));
      std::vector<Share> shares = Fit(need.rank, need.ranks, there, open);
      if (!shares.empty()) return Start(job, need, std::move(shares));
    }
    Refused refused;
    if (room) {
      refused.in_the_way_of = InTheWayOf(need, open);
    } else if (RoomInAll(need.rank, need.ranks, cluster_.free, usable) >= need.ranks) {
      refused.held_back_by = HeldBackBy(need.rank, usable, cluster_);
    }
    Wait(job, kinds_[job.kind] = refused);
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

  bool IsDue(const Reservation& reservation) const {
    return reservation.start_unix_ns > 0 && reservation.start_unix_ns <= now_unix_ns_;
  }

  std::vector<Share> Start(const Waiting& job, const Need& need, std::vector<Share> shares) {
    for (const Share& share : shares) {
      Amount& free = cluster_.free[share.node];
      free = Without(free, need.rank, share.ranks);
    }
    Take(job.job_id, need.rank, shares, SpanOf(now_unix_ns_, need.runs_ns));
    return shares;
  }

  void Wait(const Waiting& job, Refused& kind) {
    Waiter waiter;
    waiter.job = &job;
    waiter.held_back_by = kind.held_back_by;
    waiter.in_the_way_of = kind.in_the_way_of;
    for (const Reserved& one : reserved_) {
      if (one.job == kind.in_the_way_of) waiter.then_ns = one.start - now_unix_ns_;
    }
    const bool reserved = Reserve(job, kind, waiter);
    waiters_.push_back(waiter);
    // One that is only in the way of a reservation gains nothing by nodes that run dry: they are
    // kept for that one already.
    if (reserved || kind.in_the_way_of != 0 ||
        now_unix_ns_ - job.waits_since_unix_ns < patience_ns_ || std::exchange(kind.holds, true)) {
      return;
    }
    const std::vector<bool> usable = cluster_.OfThoseUsable(cluster_.MayUse(job.resources));
    HoldNodes(job, std::max<uint64_t>(1, job.resources.ranks()), usable, cluster_);
  }

  bool Reserve(const Waiting& job, Refused& kind, Waiter& waiter) {
    if (reserved_.size() >= policy_.most_reservations || !timeline_.AnyEnd()) return false;
    if (kind.starts_not_before == kNoEnd) return false;
    const Need need = NeedOf(job);
    const std::vector<bool> open =
        NotHeld(cluster_.OfThoseUsable(cluster_.MayUse(job.resources)), cluster_);
    // Those that find none are looked for as well, and each look is at all that runs.
    if (++looks_ > kLooksOfReservation * policy_.most_reservations) return false;
    const bool ever = RoomInAll(need.rank, need.ranks, cluster_.capacity, open) >= need.ranks;
    const int64_t start = ever ? timeline_.EarliestStart(need.rank, need.ranks, open, need.runs_ns,
                                                         kind.starts_not_before)
                               : kNoEnd;
    kind.starts_not_before = start;
    if (start == kNoEnd) return false;
    Reserved reserved{job.job_id, start, {}};
    const int64_t before = job.reservation.start_unix_ns;
    if (before > now_unix_ns_ && start >= before && StillHolds(job, need, open, before)) {
      reserved.start = before;
      reserved.shares = SharesOf(job.reservation.allocation);
    } else {
      reserved.shares =
          Fit(need.rank, need.ranks, timeline_.Least(SpanOf(start, need.runs_ns)), open);
    }
    waiter.starts_after = timeline_.EndsAt(reserved.start, reserved.shares);
    waiter.starts_in_ns = reserved.start - now_unix_ns_;
    Take(job.job_id, need.rank, reserved.shares, SpanOf(reserved.start, need.runs_ns));
    reservations_[job.job_id] = {reserved.start, AllocationOf(reserved.shares, cluster_)};
    reserved_.push_back(std::move(reserved));
    return true;
  }

  // The reservation of the decision before, from `start` on.
  bool StillHolds(const Waiting& job, const Need& need, const std::vector<bool>& open,
                  int64_t start) const {
    uint64_t ranks = 0;
    for (const Share& share : SharesOf(job.reservation.allocation)) {
      const Amount least = timeline_.Least(share.node, SpanOf(start, need.runs_ns));
      if (!open[share.node] || RoomFor(need.rank, least, share.ranks) < share.ranks) return false;
      ranks += share.ranks;
    }
    return ranks == need.ranks;
  }

  // The first whose start it would run into.
  uint64_t InTheWayOf(const Need& need, const std::vector<bool>& open) const {
    for (const Reserved& one : reserved_) {
      for (const Share& share : one.shares) {
        const bool there = open[share.node] && RoomFor(need.rank, cluster_.free[share.node], 1) > 0;
        if (there && one.start < SpanOf(now_unix_ns_, need.runs_ns).until) return one.job;
      }
    }
    return 0;
  }

  std::vector<Share> SharesOf(const std::vector<v1::NodeAllocation>& allocation) const {
    std::vector<Share> shares;
    for (const v1::NodeAllocation& part : allocation) {
      const auto node = cluster_.index.find(part.node());
      if (node != cluster_.index.end()) shares.push_back({node->second, part.ranks()});
    }
    return shares;
  }

  void Take(uint64_t job, const Amount& rank, const std::vector<Share>& shares, const Span& span) {
    for (const Share& share : shares) timeline_.Take(job, rank, share, span);
  }

  ClusterView& cluster_;
  const SchedulingPolicy& policy_;
  const int64_t patience_ns_;
  const uint64_t user_ranks_;
  const int64_t now_unix_ns_;
  std::unordered_map<std::string, uint64_t> running_;  // ranks, of users whom the cap holds
  Timeline timeline_;
  std::unordered_map<uint32_t, Refused> kinds_;
  std::vector<Waiter> waiters_;
  uint64_t first_waiter_ = 0;       // of those that wait for room; 0: none so far
  std::vector<Reserved> reserved_;  // in the order of the queue
  size_t looks_ = 0;                // for reservations
  std::map<uint64_t, Reservation> reservations_;
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
    if (!shares.empty()) decision.allocations[job->job_id] = AllocationOf(shares, cluster);
  }
  decision.reservations = pass.TakeReservations();
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
