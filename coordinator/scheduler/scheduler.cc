// In the order of the queue, each job takes what fits it now and leaves what reservations of those
// before it need then; of a line those behind the first that only waits are not looked at. One that
// waits gets a reservation, where time limits tell when it can start; else, once it has waited for
// too long, it keeps those behind it off the nodes that it may use.
#include "coordinator/scheduler/scheduler.h"

#include <algorithm>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "coordinator/scheduler/cluster_view.h"
#include "coordinator/scheduler/timeline.h"
#include "coordinator/scheduler/waits.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kLooksOfReservation = 4;

std::vector<v1::NodeAllocation> AllocationOf(const std::vector<Share>& shares,
                                             const ClusterView& cluster) {
  std::vector<v1::NodeAllocation> allocation;
  for (const Share& share : shares) {
    v1::NodeAllocation& part = allocation.emplace_back();
    part.set_node(cluster.nodes[share.node].name);
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

// What of a request is the same in each look at it.
struct Need {
  Amount rank;
  uint64_t ranks = 1;
  int64_t runs_ns = kNoEnd;
};
Need NeedOf(const Asked& asked) {
  return {AmountOfRank(asked.resources), std::max<uint64_t>(1, asked.resources.ranks()),
          asked.runs_ns > 0 ? asked.runs_ns : kNoEnd};
}

// Nobody behind `job` passes it any more. One that would not fit if all others were gone holds
// nothing: nodes would run dry for nothing.
void HoldNodes(uint64_t job, const Need& need, const std::vector<bool>& usable,
               ClusterView& cluster) {
  if (RoomInAll(need.rank, need.ranks, cluster.capacity, usable) < need.ranks) return;
  for (size_t i = 0; i < usable.size(); ++i) {
    const bool of_use = usable[i] && RoomFor(need.rank, cluster.capacity[i], 1) > 0;
    if (of_use && cluster.held_by[i] == 0) cluster.held_by[i] = job;
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

enum class Outcome {
  kStarts,
  kWaitsAlone,  // those behind it may fare otherwise
  kLineWaits,   // and so do all of its line behind it, for the same
};

class Pass {
 public:
  Pass(const std::vector<Holding>& holding, const Queue& queue, Waits& waits, Decision& decision,
       int64_t now_unix_ns)
      : queue_(queue),
        waits_(waits),
        decision_(decision),
        cluster_(waits.cluster),
        policy_(waits.policy),
        patience_ns_(std::chrono::nanoseconds(policy_.patience).count()),
        now_unix_ns_(now_unix_ns),
        timeline_(cluster_.capacity) {
    for (const Holding& held : holding) {
      for (const v1::NodeAllocation& part : held.allocation) Count(held.user, part.ranks());
      // One that runs on beyond its end does so a moment more.
      const int64_t end = std::max(held.ends_unix_ns, now_unix_ns + 1);
      Take(held.job_id, AmountOfRank(held.resources), SharesOf(held.allocation),
           {now_unix_ns, held.ends_unix_ns == 0 ? kNoEnd : end});
    }
  }

  void Walk() {
    const auto later = [](const Cursor& a, const Cursor& b) { return a.job > b.job; };
    std::priority_queue<Cursor, std::vector<Cursor>, decltype(later)> next(later);
    const std::vector<const Queue::Line*> lines = queue_.lines();
    kinds_.reserve(lines.size());
    waits_.of_lines.reserve(lines.size());
    for (const Queue::Line* line : lines) next.push({*line->jobs.begin(), line});
    // Whoever was told that he starts by now does so, though his line waits.
    for (const auto& [id, reservation] : queue_.reservations()) {
      if (IsDue(&reservation)) next.push({queue_.KeyOf(id), &queue_.LineOf(id), true});
    }
    while (!next.empty()) {
      const Cursor at = next.top();
      next.pop();
      const Reservation* before = ReservationOf(at.job.job_id);
      Outcome outcome = Outcome::kWaitsAlone;
      if (at.alone || !IsDue(before)) outcome = Look(at, before);
      if (at.alone || outcome == Outcome::kLineWaits) continue;
      const auto behind = at.line->jobs.upper_bound(at.job);
      if (behind != at.line->jobs.end()) next.push({*behind, at.line});
    }
  }

 private:
  // The next of a line, or one of it that is looked at for itself.
  struct Cursor {
    QueueKey job;
    const Queue::Line* line = nullptr;
    bool alone = false;
  };
  struct Reserved {
    uint64_t job = 0;
    int64_t start = 0;
    std::vector<Share> shares;
  };

  Outcome Look(const Cursor& at, const Reservation* before) {
    ++decision_.looked_at;
    Waiter waiter{.asked = at.line->asked};
    const Outcome outcome = Decide(at, before, waiter);
    if (outcome == Outcome::kStarts) return outcome;
    if (outcome == Outcome::kWaitsAlone || at.alone) {
      waits_.of_jobs.emplace(at.job.job_id, std::move(waiter));
    } else {
      waits_.of_lines.emplace(at.line->number, std::move(waiter));
    }
    return outcome;
  }

  Outcome Decide(const Cursor& at, const Reservation* before, Waiter& waiter) {
    const Need need = NeedOf(*at.line->asked);
    const std::string& user = at.line->asked->user;
    // It waits for its own user alone, so it keeps nobody off anything.
    if (OverCap(user, need.ranks)) {
      waiter.ranks_of_user = running_[user];
      return Outcome::kLineWaits;
    }
    if (policy_.in_order && first_waiter_ != 0) {
      waiter.held_back_by = first_waiter_;
      return Outcome::kLineWaits;
    }
    if (Starts(at, need, before)) {
      Count(user, need.ranks);
      return Outcome::kStarts;
    }
    const Outcome outcome = Wait(at, need, before, waiter);
    if (first_waiter_ != 0) return outcome;
    first_waiter_ = at.job.job_id;
    return policy_.in_order ? Outcome::kWaitsAlone : outcome;  // the others wait for this one
  }

  // Else what keeps its kind from it is known.
  bool Starts(const Cursor& at, const Need& need, const Reservation* before) {
    const bool due = IsDue(before);
    const bool refused = kinds_.contains(at.line->kind);
    if (refused && !due) return false;
    const std::vector<bool> usable = UsableTo(*at.line);
    const std::vector<bool> open = NotHeld(usable, cluster_);
    // Elsewhere it might be in the way of others' reservations.
    if (due && StillHolds(*before, need, open, now_unix_ns_)) {
      Start(at.job.job_id, need, SharesOf(before->allocation));
      return true;
    }
    if (refused) return false;
    // What is free now is the most that it may have: without it nothing else is looked at.
    const bool room = RoomInAll(need.rank, need.ranks, cluster_.free, open) >= need.ranks;
    if (room) {
      const std::vector<Amount> there =
          reserved_.empty() ? cluster_.free : timeline_.Least(SpanOf(now_unix_ns_, need.runs_ns));
      const std::vector<Share> shares = FitOthersFirst(*at.line->asked, need, there, open);
      if (!shares.empty()) {
        Start(at.job.job_id, need, shares);
        return true;
      }
    }
    Refused& kind = kinds_[at.line->kind];
    if (room) {
      kind.in_the_way_of = InTheWayOf(need, open);
    } else if (RoomInAll(need.rank, need.ranks, cluster_.free, usable) >= need.ranks) {
      kind.held_back_by = HeldBackBy(need.rank, usable, cluster_);
    }
    return false;
  }

  std::vector<bool> UsableTo(const Queue::Line& line) const { return cluster_.OpenTo(*line.asked); }

  // Others than those it avoids, then those of them that could not start it longest ago.
  std::vector<Share> FitOthersFirst(const Asked& asked, const Need& need,
                                    const std::vector<Amount>& there,
                                    const std::vector<bool>& open) const {
    const std::span<const std::string> avoids(asked.avoids);
    for (size_t again = 0; again < avoids.size(); ++again) {
      std::vector<Share> shares =
          Fit(need.rank, need.ranks, there, cluster_.Without(open, avoids.subspan(again)));
      if (!shares.empty()) return shares;
    }
    return Fit(need.rank, need.ranks, there, open);
  }

  void Count(const std::string& user, uint64_t ranks) {
    if (policy_.user_running_ranks > 0 && !user.empty()) running_[user] += ranks;
  }
  bool OverCap(const std::string& user, uint64_t ranks) const {
    if (policy_.user_running_ranks == 0 || user.empty()) return false;
    const auto found = running_.find(user);
    return ranks + (found == running_.end() ? 0 : found->second) > policy_.user_running_ranks;
  }

  // Of the decision before; null: none.
  const Reservation* ReservationOf(uint64_t job) const {
    const auto found = queue_.reservations().find(job);
    return found == queue_.reservations().end() ? nullptr : &found->second;
  }
  bool IsDue(const Reservation* reservation) const {
    return reservation != nullptr && reservation->start_unix_ns <= now_unix_ns_;
  }

  void Start(uint64_t job, const Need& need, const std::vector<Share>& shares) {
    for (const Share& share : shares) {
      Amount& free = cluster_.free[share.node];
      free = Without(free, need.rank, share.ranks);
    }
    Take(job, need.rank, shares, SpanOf(now_unix_ns_, need.runs_ns));
    decision_.allocations[job] = AllocationOf(shares, cluster_);
  }

  // Whatever keeps it from a reservation keeps those behind it in its line from one as well: by
  // then there is less room, and no more looks.
  Outcome Wait(const Cursor& at, const Need& need, const Reservation* before, Waiter& waiter) {
    Refused& kind = kinds_.at(at.line->kind);
    waiter.held_back_by = kind.held_back_by;
    waiter.in_the_way_of = kind.in_the_way_of;
    for (const Reserved& one : reserved_) {
      if (one.job == kind.in_the_way_of) waiter.then_ns = one.start - now_unix_ns_;
    }
    if (Reserve(at, need, before, kind, waiter)) return Outcome::kWaitsAlone;
    const bool patient = now_unix_ns_ - at.line->WaitsSince(at.job) < patience_ns_;
    // One that is only in the way of a reservation gains nothing by nodes that run dry: they are
    // kept for that one already.
    if (kind.in_the_way_of == 0 && !patient && !std::exchange(kind.holds, true)) {
      HoldNodes(at.job.job_id, need, UsableTo(*at.line), cluster_);
    }
    return Outcome::kLineWaits;
  }

  bool Reserve(const Cursor& at, const Need& need, const Reservation* before, Refused& kind,
               Waiter& waiter) {
    if (reserved_.size() >= policy_.most_reservations || !timeline_.AnyEnd()) return false;
    if (kind.starts_not_before == kNoEnd) return false;
    // Those that find none are looked for as well, and each look is at all that runs.
    if (++looks_ > kLooksOfReservation * policy_.most_reservations) return false;
    const std::vector<bool> open = NotHeld(UsableTo(*at.line), cluster_);
    const bool ever = RoomInAll(need.rank, need.ranks, cluster_.capacity, open) >= need.ranks;
    const int64_t start = ever ? timeline_.EarliestStart(need.rank, need.ranks, open, need.runs_ns,
                                                         kind.starts_not_before)
                               : kNoEnd;
    kind.starts_not_before = start;
    if (start == kNoEnd) return false;
    Reserved reserved{at.job.job_id, start, {}};
    const int64_t start_before = before == nullptr ? 0 : before->start_unix_ns;
    if (start_before > now_unix_ns_ && start >= start_before &&
        StillHolds(*before, need, open, start_before)) {
      reserved.start = start_before;
      reserved.shares = SharesOf(before->allocation);
    } else {
      const std::vector<Amount> there = timeline_.Least(SpanOf(start, need.runs_ns));
      reserved.shares = FitOthersFirst(*at.line->asked, need, there, open);
    }
    waiter.starts_after = timeline_.EndsAt(reserved.start, reserved.shares);
    waiter.starts_in_ns = reserved.start - now_unix_ns_;
    Take(reserved.job, need.rank, reserved.shares, SpanOf(reserved.start, need.runs_ns));
    decision_.reservations[reserved.job] = {reserved.start,
                                            AllocationOf(reserved.shares, cluster_)};
    reserved_.push_back(std::move(reserved));
    return true;
  }

  // The reservation of the decision before, from `start` on.
  bool StillHolds(const Reservation& before, const Need& need, const std::vector<bool>& open,
                  int64_t start) const {
    uint64_t ranks = 0;
    for (const Share& share : SharesOf(before.allocation)) {
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

  const Queue& queue_;
  Waits& waits_;
  Decision& decision_;
  ClusterView& cluster_;
  const SchedulingPolicy& policy_;
  const int64_t patience_ns_;
  const int64_t now_unix_ns_;
  std::unordered_map<std::string, uint64_t> running_;  // ranks, of users whom the cap holds
  Timeline timeline_;
  absl::flat_hash_map<std::string_view, Refused> kinds_;
  uint64_t first_waiter_ = 0;       // of those that wait for room; 0: none so far
  std::vector<Reserved> reserved_;  // in the order of the queue
  size_t looks_ = 0;                // for reservations
};

}  // namespace

Decision Schedule(std::vector<NodeCapacity> nodes, const std::vector<Holding>& holding,
                  const Queue& queue, const SchedulingPolicy& policy, int64_t now_unix_ns) {
  Decision decision;
  const auto waits = std::make_shared<Waits>();
  waits->cluster = ViewOf(std::move(nodes), holding);
  waits->policy = policy;
  Pass(holding, queue, *waits, decision, now_unix_ns).Walk();
  decision.waits = waits;
  return decision;
}

ClusterView ViewOf(std::vector<NodeCapacity> nodes, const std::vector<Holding>& holding) {
  ClusterView view;
  view.nodes = std::move(nodes);
  for (const NodeCapacity& node : view.nodes) {
    view.index.emplace(node.name, view.capacity.size());
    view.capacity.push_back({node.cpus, node.memory_bytes, node.gpus});
  }
  view.free = view.capacity;
  view.held_by.assign(view.nodes.size(), 0);
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
  if (request.nodes().empty()) return std::vector<bool>(nodes.size(), true);
  std::vector<bool> allowed(nodes.size(), false);
  for (const std::string& name : request.nodes()) {
    if (const auto found = index.find(name); found != index.end()) allowed[found->second] = true;
  }
  return allowed;
}

std::vector<bool> ClusterView::OfThoseUsable(std::vector<bool> allowed) const {
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (!nodes[i].usable) allowed[i] = false;
  }
  return allowed;
}

std::vector<bool> ClusterView::Without(std::vector<bool> allowed,
                                       std::span<const std::string> nodes) const {
  for (const std::string& name : nodes) {
    if (const auto found = index.find(name); found != index.end()) allowed[found->second] = false;
  }
  return allowed;
}

std::vector<bool> ClusterView::OpenTo(const Asked& asked) const {
  std::vector<bool> usable = OfThoseUsable(MayUse(asked.resources));
  if (asked.avoids.empty() || !asked.waits_for_others) return usable;
  std::vector<bool> others = Without(usable, asked.avoids);
  const uint64_t ranks = std::max<uint64_t>(1, asked.resources.ranks());
  const bool hold = RoomInAll(AmountOfRank(asked.resources), ranks, capacity, others) >= ranks;
  return hold ? others : usable;
}

}  // namespace trireme::coordinator
