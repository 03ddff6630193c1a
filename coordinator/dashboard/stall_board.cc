#include "coordinator/dashboard/stall_board.h"

#include <memory>
#include <utility>

#include "coordinator/job_machine/job_machine.h"
#include "coordinator/job_store/job_store.h"
#include "runtime/base/status_macros.h"

namespace trireme::dashboard {
namespace {

constexpr size_t kPiece = 1000;

// What is newer than `up_to` is not taken: the table has it.
absl::StatusOr<report::StalledRanks> ReadFromBegin(coordinator::JobStore& store, uint64_t job_id,
                                                   uint64_t up_to, coordinator::DiskPulse& pulse) {
  report::StalledRanks ranks;
  coordinator::EventQuery query;
  query.job_id = job_id;
  query.limit = kPiece;
  while (true) {
    if (!pulse.Beat()) return absl::CancelledError("nobody waits for it");
    ASSIGN_OR_RETURN(const std::vector<v1::Event> events, store.Events(query));
    for (const v1::Event& event : events) {
      if (event.has_stalled() && event.sequence() <= up_to) ranks.Take(event);
    }
    if (events.size() < kPiece) return ranks;
    query.after_sequence = events.back().sequence();
  }
}

}  // namespace

std::vector<StallBoard::Texts> StallBoard::Of(std::span<const v1::Job> jobs) {
  ReadUnknown(jobs);
  const absl::MutexLock lock(&mutex_);
  std::vector<Texts> texts;
  for (const v1::Job& job : jobs) {
    const auto known = jobs_.find(job.id());
    const bool told = job.status().attempt_live() && known != jobs_.end();
    texts.push_back(told ? known->second.Of(job.status().attempt()) : Texts());
  }
  return texts;
}

void StallBoard::ReadUnknown(std::span<const v1::Job> jobs) {
  std::vector<uint64_t> unknown;
  uint64_t seen = 0;
  {
    const absl::MutexLock lock(&mutex_);
    CatchUp();
    seen = seen_;
    for (const v1::Job& job : jobs) {
      if (job.status().attempt_live() && !jobs_.contains(job.id())) unknown.push_back(job.id());
    }
  }
  if (unknown.empty()) return;
  const auto pulse = std::make_shared<coordinator::DiskPulse>();
  absl::StatusOr<Ranks> read = reads_.Wait(
      "", kDiskTime,
      [unknown, seen, pulse](const coordinator::JobTable&,
                             coordinator::JobStore* store) -> absl::StatusOr<Ranks> {
        if (store == nullptr) return coordinator::AskTheStore();
        Ranks ranks;
        for (const uint64_t id : unknown) {
          ASSIGN_OR_RETURN(ranks[id], ReadFromBegin(*store, id, seen, *pulse));
        }
        return ranks;
      },
      pulse);
  if (!read.ok()) return;
  const absl::MutexLock lock(&mutex_);
  CatchUp();
  if (Follow(*read, seen, seen_)) jobs_.merge(*read);
}

void StallBoard::CatchUp() {
  const uint64_t last = table_.last_sequence();
  if (!Follow(jobs_, seen_, last)) jobs_.clear();
  seen_ = last;
}

bool StallBoard::Follow(Ranks& ranks, uint64_t from, uint64_t to) const {
  while (from < to && !ranks.empty()) {
    const auto events = table_.EventsAfter(from, kPiece);
    if (!events) return false;
    for (const v1::Event& event : *events) {
      from = event.sequence();
      const auto found = ranks.find(event.job_id());
      if (from > to || found == ranks.end()) continue;
      if (event.has_stalled()) found->second.Take(event);
      if (event.has_state_changed() && coordinator::HasEnded(event.state_changed().to())) {
        ranks.erase(found);
      }
    }
  }
  return true;
}

}  // namespace trireme::dashboard
