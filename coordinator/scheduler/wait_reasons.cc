// Why a job waits, from what no cluster of these nodes could change to what passes by itself.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "coordinator/scheduler/waits.h"
#include "runtime/base/duration_text.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

std::string MemoryText(double bytes) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30, kTiB = 1024 * kGiB;
  if (bytes < kGiB) return fmt::format("{:.0f} MiB", bytes / kMiB);
  if (bytes < kTiB) return fmt::format("{:.1f} GiB", bytes / kGiB);
  return fmt::format("{:.1f} TiB", bytes / kTiB);
}

// One of the three things that a rank takes.
struct Kind {
  uint64_t Amount::*amount;
  std::string (*text)(double amount);  // "8 CPUs"
};
constexpr Kind kKinds[] = {
    {&Amount::gpus, [](double n) { return fmt::format("{:.0f} {}", n, n == 1 ? "GPU" : "GPUs"); }},
    {&Amount::cpus, [](double n) { return fmt::format("{:.0f} {}", n, n == 1 ? "CPU" : "CPUs"); }},
    {&Amount::memory_bytes, [](double n) { return MemoryText(n) + " of memory"; }},
};

// As in "but no node has more than 4": without the unit, but for memory.
std::string Bare(const Kind& kind, double amount) {
  return kind.amount == &Amount::memory_bytes ? MemoryText(amount) : fmt::format("{:.0f}", amount);
}

// "2 CPUs and 1.0 GiB of memory".
std::string RankText(const Amount& rank) {
  std::string text;
  for (const Kind& kind : kKinds) {
    if (rank.*kind.amount == 0) continue;
    if (!text.empty()) text += " and ";
    text += kind.text(static_cast<double>(rank.*kind.amount));
  }
  return text.empty() ? "nothing" : text;
}

// "nodes n1, n2 and 7 more".
template <typename Names>
std::string NodesText(const Names& names) {
  constexpr int kMost = 4;
  std::string text = names.size() == 1 ? "node" : "nodes";
  int named = 0;
  for (const std::string& name : names) {
    if (named == kMost) {
      return fmt::format("{} and {} more", text, static_cast<int>(names.size()) - kMost);
    }
    text += (named++ == 0 ? " " : ", ") + name;
  }
  return text;
}

class Reason {
 public:
  Reason(const Waiter& waiter, const ClusterView& cluster)
      : asked_(*waiter.asked),
        cluster_(cluster),
        rank_(AmountOfRank(asked_.resources)),
        ranks_(std::max<uint64_t>(1, asked_.resources.ranks())),
        allowed_(cluster.MayUse(asked_.resources)),
        usable_(cluster.OpenTo(asked_)) {}

  // Empty, unless the job does not fit even if everything were free and in order. `trireme explain`
  // knows what to do by how these and the next begin.
  std::string Impossible() const {
    if (cluster_.capacity.empty()) return "there are no nodes";
    if (std::find(allowed_.begin(), allowed_.end(), true) == allowed_.end()) {
      const auto& names = asked_.resources.nodes();
      return fmt::format("may use only {}, which {} not known", NodesText(names),
                         names.size() == 1 ? "is" : "are");
    }
    // What it has is told by its agent, which has not come yet.
    for (size_t i = 0; i < allowed_.size(); ++i) {
      if (allowed_[i] && IsUnknown(i)) return "";
    }
    const std::string no_node =
        asked_.resources.nodes().empty() ? "no node has" : "no node that it may use has";
    for (const Kind& kind : kKinds) {
      const double most = static_cast<double>(Most(kind.amount));
      const double asked = static_cast<double>(rank_.*kind.amount);
      if (asked <= most) continue;
      return fmt::format("asks for {} a rank, but {} {}", kind.text(asked), no_node,
                         most == 0 ? "any" : "more than " + Bare(kind, most));
    }
    const uint64_t room = RoomInAll(rank_, ranks_, cluster_.capacity, allowed_);
    if (room == 0) {
      return fmt::format("asks for {} a rank, but {} all of that", RankText(rank_), no_node);
    }
    if (room >= ranks_) return "";
    return fmt::format("asks for {} of {} each, but all nodes{} together hold {} of them",
                       base::Counted(ranks_, "rank"), RankText(rank_),
                       asked_.resources.nodes().empty() ? "" : " that it may use", room);
  }

  // Empty, unless it is for want of nodes that are drained or lost.
  std::string Unusable() const {
    if (RoomInAll(rank_, ranks_, cluster_.capacity, usable_) >= ranks_) return "";
    constexpr int kMost = 3;
    std::string text = "too few nodes are left for it";
    int named = 0;
    for (size_t i = 0; i < allowed_.size(); ++i) {
      if (!allowed_[i] || usable_[i]) continue;
      if (!IsUnknown(i) && RoomFor(rank_, cluster_.capacity[i], 1) == 0) continue;
      if (named < kMost) {
        const NodeCapacity& node = cluster_.nodes[i];
        text += fmt::format("{} node {} is {}", named == 0 ? ":" : ";", node.name,
                            node.unusable_why.empty() ? "not usable" : node.unusable_why);
      }
      ++named;
    }
    if (named > kMost) text += fmt::format("; and {} more", named - kMost);
    return text;
  }

  // What it asks for is taken by others.
  std::string Busy() const {
    const std::string where =
        asked_.resources.nodes().empty() ? "" : " on " + NodesText(asked_.resources.nodes());
    for (const Kind& kind : kKinds) {
      const double asked = static_cast<double>(rank_.*kind.amount) * static_cast<double>(ranks_);
      double free = 0, all = 0;
      for (size_t i = 0; i < usable_.size(); ++i) {
        if (!usable_[i]) continue;
        free += static_cast<double>(cluster_.free[i].*kind.amount);
        all += static_cast<double>(cluster_.capacity[i].*kind.amount);
      }
      if (free >= asked) continue;
      return fmt::format("waits for {}; {} of {} are free{}", kind.text(asked), Bare(kind, free),
                         Bare(kind, all), where);
    }
    return fmt::format("waits for room for {} of {} each; there is room for {} now{}",
                       base::Counted(ranks_, "rank"), RankText(rank_),
                       RoomInAll(rank_, ranks_, cluster_.free, usable_), where);
  }

  // Nodes that could not start it, while others can hold it.
  std::string Avoided() const {
    std::vector<std::string> names;
    for (const std::string& name : asked_.avoids) {
      const auto node = cluster_.index.find(name);
      if (node == cluster_.index.end() || !allowed_[node->second]) continue;
      if (cluster_.nodes[node->second].usable && !usable_[node->second]) names.push_back(name);
    }
    return names.empty()
               ? ""
               : fmt::format("; it keeps off {}, which could not start it", NodesText(names));
  }

 private:
  bool IsUnknown(size_t node) const {
    return cluster_.capacity[node].cpus == 0 && !cluster_.nodes[node].gone;
  }

  uint64_t Most(uint64_t Amount::*kind) const {
    uint64_t most = 0;
    for (size_t i = 0; i < allowed_.size(); ++i) {
      if (allowed_[i]) most = std::max(most, cluster_.capacity[i].*kind);
    }
    return most;
  }

  const Asked& asked_;
  const ClusterView& cluster_;
  const Amount rank_;
  const uint64_t ranks_;
  const std::vector<bool> allowed_;
  const std::vector<bool> usable_;
};

std::string DurationText(std::chrono::seconds duration) {
  const int64_t seconds = duration.count();
  return seconds > 0 && seconds % 60 == 0 ? base::Counted(seconds / 60, "minute")
                                          : base::Counted(seconds, "second");
}

// `trireme explain` knows what to do by how these begin.
std::string OverCapText(const Asked& asked, uint64_t running, uint64_t most) {
  const uint64_t ranks = std::max<uint64_t>(1, asked.resources.ranks());
  if (ranks > most) {
    return fmt::format(
        "asks for {}, but {} may run {} at a time (--user-running-ranks of the daemon)",
        base::Counted(static_cast<int64_t>(ranks), "rank"), asked.user, most);
  }
  return fmt::format(
      "waits for other jobs of {}: {} of the {} that one user may run at a time are in use, and it "
      "asks for {} (--user-running-ranks of the daemon)",
      asked.user, running, base::Counted(static_cast<int64_t>(most), "rank"), ranks);
}

std::string WithStart(const Waiter& waiter, std::string text) {
  if (waiter.starts_in_ns == 0) return text;
  text += "; starts ";
  if (waiter.starts_after != 0) text += fmt::format("when job {} ends, ", waiter.starts_after);
  return text + fmt::format("in {} at the latest",
                            base::DurationText(std::chrono::nanoseconds(waiter.starts_in_ns)));
}

// What people wrote when they drained a node may hold anything.
std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

std::string Sentence(const Waiter& waiter, const Waits& waits, const QueuePlace& place) {
  const Reason reason(waiter, waits.cluster);
  if (std::string text = reason.Impossible(); !text.empty()) return text;
  if (waiter.ranks_of_user) {
    return OverCapText(*waiter.asked, *waiter.ranks_of_user, waits.policy.user_running_ranks);
  }
  if (std::string text = reason.Unusable(); !text.empty()) return text;
  if (waiter.in_the_way_of != 0) {
    return WithStart(
        waiter,
        fmt::format(
            "waits, for it would not end before job {} starts there, in {} at "
            "the latest{}",
            waiter.in_the_way_of, base::DurationText(std::chrono::nanoseconds(waiter.then_ns)),
            waiter.asked->runs_ns == 0 ? "; with resources.time_limit_seconds it might" : ""));
  }
  if (waiter.held_back_by != 0) {
    return fmt::format("job {} has waited for more than {} and goes first", waiter.held_back_by,
                       DurationText(waits.policy.patience));
  }
  std::string text = reason.Busy() + reason.Avoided();
  if (place.before == 1) text += fmt::format("; job {} is before it", place.last_before);
  if (place.before > 1) text += fmt::format("; {} jobs are before it", place.before);
  return WithStart(waiter, std::move(text));
}

}  // namespace

std::string Waits::ReasonOf(uint64_t job_id, uint64_t line, const QueuePlace& place) const {
  const auto job = of_jobs.find(job_id);
  if (job != of_jobs.end()) return OneLine(Sentence(job->second, *this, place));
  const auto found = of_lines.find(line);
  return found == of_lines.end() ? "" : OneLine(Sentence(found->second, *this, place));
}

}  // namespace trireme::coordinator
