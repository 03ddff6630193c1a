#include "coordinator/scheduler/timeline.h"

#include <algorithm>

namespace trireme::coordinator {

void Timeline::Take(uint64_t job, const Amount& rank, const Share& share, const Span& span) {
  uses_[share.node].push_back({job, rank, share.ranks, span});
  if (span.until == kNoEnd) return;
  const auto at = std::lower_bound(ends_.begin(), ends_.end(), span.until);
  if (at == ends_.end() || *at != span.until) ends_.insert(at, span.until);
}

Amount Timeline::Least(size_t node, const Span& span) const {
  const std::vector<Use>& uses = uses_[node];
  const auto at = [&](int64_t time) {
    Amount free = capacity_[node];
    for (const Use& use : uses) {
      if (use.span.from <= time && time < use.span.until) free = Without(free, use.rank, use.ranks);
    }
    return free;
  };
  Amount least = at(span.from);
  // It gets less only where something begins.
  for (const Use& use : uses) {
    if (use.span.from <= span.from || use.span.from >= span.until) continue;
    const Amount then = at(use.span.from);
    least.cpus = std::min(least.cpus, then.cpus);
    least.memory_bytes = std::min(least.memory_bytes, then.memory_bytes);
    least.gpus = std::min(least.gpus, then.gpus);
  }
  return least;
}

std::vector<Amount> Timeline::Least(const Span& span) const {
  std::vector<Amount> least;
  least.reserve(capacity_.size());
  for (size_t node = 0; node < capacity_.size(); ++node) least.push_back(Least(node, span));
  return least;
}

int64_t Timeline::EarliestStart(const Amount& rank, uint64_t ranks,
                                const std::vector<bool>& allowed, int64_t runs_ns,
                                int64_t not_before) const {
  for (auto end = std::lower_bound(ends_.begin(), ends_.end(), not_before); end != ends_.end();
       ++end) {
    const Span span = SpanOf(*end, runs_ns);
    uint64_t room = 0;
    for (size_t node = 0; node < capacity_.size() && room < ranks; ++node) {
      if (allowed[node]) room += RoomFor(rank, Least(node, span), ranks - room);
    }
    if (room >= ranks) return *end;
  }
  return kNoEnd;
}

uint64_t Timeline::EndsAt(int64_t time, const std::vector<Share>& shares) const {
  for (const Share& share : shares) {
    for (const Use& use : uses_[share.node]) {
      if (use.span.until == time) return use.job;
    }
  }
  return 0;
}

}  // namespace trireme::coordinator
