#include "coordinator/dashboard/stall_board.h"

#include <utility>

#include "coordinator/job_machine/job_machine.h"

namespace trireme::dashboard {

std::vector<std::string> StallBoard::Of(const v1::Job& job) {
  if (!job.status().attempt_live()) return {};
  const absl::MutexLock lock(&mutex_);
  CatchUp();
  if (!jobs_.contains(job.id()) && !ReadFromBegin(job.id())) return {};
  return jobs_[job.id()].Of(job.status().attempt());
}

bool StallBoard::ReadFromBegin(uint64_t job_id) {
  report::StalledRanks ranks;
  coordinator::EventQuery query;
  query.job_id = job_id;
  query.limit = kPiece;
  while (true) {
    const auto events = store_.Events(query);
    if (!events.ok()) return false;
    for (const v1::Event& event : *events) {
      // What is newer is taken when all of it is.
      if (event.has_stalled() && event.sequence() <= seen_) ranks.Take(event);
    }
    if (events->size() < kPiece) break;
    query.after_sequence = events->back().sequence();
  }
  jobs_[job_id] = std::move(ranks);
  return true;
}

void StallBoard::CatchUp() {
  const uint64_t last = table_.last_sequence();
  if (jobs_.empty()) seen_ = last;  // nobody's news
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
  const auto found = jobs_.find(event.job_id());
  if (found == jobs_.end()) return;
  if (event.has_stalled()) found->second.Take(event);
  if (event.has_state_changed() && coordinator::HasEnded(event.state_changed().to())) {
    jobs_.erase(found);
  }
}

}  // namespace trireme::dashboard
