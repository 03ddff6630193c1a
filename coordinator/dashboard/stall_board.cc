#include "coordinator/dashboard/stall_board.h"

#include <algorithm>

#include "coordinator/job_machine/job_machine.h"

namespace trireme::dashboard {

std::vector<std::string> StallBoard::Of(const v1::Job& job) {
  if (!job.status().attempt_live()) return {};
  const absl::MutexLock lock(&mutex_);
  CatchUp();
  const auto found = jobs_.find(job.id());
  if (found == jobs_.end()) return {};
  return found->second.Of(job.status().attempt());
}

void StallBoard::CatchUp() {
  const uint64_t last = table_.last_sequence();
  if (last > kMostEvents) seen_ = std::max(seen_, last - kMostEvents);
  while (seen_ < last) {
    auto events = table_.EventsAfter(seen_, kPiece);
    if (!events) {
      coordinator::EventQuery query;
      query.after_sequence = seen_;
      query.limit = kPiece;
      auto stored = store_.Events(query);
      if (!stored.ok()) return;  // told at the next call
      events = *std::move(stored);
    }
    if (events->empty()) return;
    for (const v1::Event& event : *events) Take(event);
    seen_ = events->back().sequence();
  }
}

void StallBoard::Take(const v1::Event& event) {
  if (event.has_stalled()) {
    jobs_[event.job_id()].Take(event);
    if (jobs_[event.job_id()].empty()) jobs_.erase(event.job_id());
  } else if (event.has_state_changed() && coordinator::HasEnded(event.state_changed().to())) {
    jobs_.erase(event.job_id());
  }
}

}  // namespace trireme::dashboard
