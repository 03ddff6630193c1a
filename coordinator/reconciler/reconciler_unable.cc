// Nodes that can start nothing: which are drained for it, and when a job leaves one
// (docs/coordinator.md).
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/job_machine/reasons.h"
#include "coordinator/job_machine/unable_nodes.h"
#include "coordinator/reconciler/reconciler.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

// Whether a rank of it has come up on the node that says so. An end alone says nothing of that: the
// attempt may have been refused, or mpirun has ended before.
bool HasBegun(const v1::AttemptReport& report) {
  const auto& ranks = report.ranks();
  return report.phase() == v1::ATTEMPT_RUNNING ||
         std::any_of(ranks.begin(), ranks.end(), [](const v1::RankReport& rank) {
           return rank.life() != v1::RANK_LIFE_UNSPECIFIED && rank.life() != v1::RANK_STARTING;
         });
}

// Whether an allocation would have an attempt fail there for what the one before it did: what a
// node cannot start is so where it launches the attempt, room is lacking for any ranks.
template <typename Allocation, typename Failed>
bool WouldFailAgain(const v1::JobStatus& status, const Allocation& allocation,
                    const Failed& failed) {
  if (status.exit_code() != base::kNoRoomHere) return failed(allocation.begin()->node());
  return std::any_of(allocation.begin(), allocation.end(),
                     [&](const v1::NodeAllocation& part) { return failed(part.node()); });
}

}  // namespace

// No job drains a second node: it is heard of the first alone.
bool Reconciler::IsHeardOf(const std::string& node, const v1::JobStatus& status) {
  const auto& unable = status.unable_nodes();
  return unable.empty() || (unable.size() == 1 && unable[0] == node);
}

// Of the agent that starts its ranks: whether it could. An error is the store's: it is to be said
// again.
absl::Status Reconciler::HearStart(const Entry& entry, const std::string& node,
                                   const v1::AttemptReport& before, const v1::AttemptReport& now,
                                   int64_t now_unix_ns) {
  if (node != entry.job.allocation(0).node() || before.phase() == v1::ATTEMPT_ENDED) {
    return absl::OkStatus();
  }
  if (HasBegun(now)) return HasBegun(before) ? absl::OkStatus() : HasStarted(node);
  if (now.phase() == v1::ATTEMPT_ENDED && now.never_started() &&
      IsHeardOf(node, entry.job.status())) {
    nodes_.in_vain().CouldNotStart(
        node, fmt::format("job {}: {}", entry.job.id(), EndingOf(now.exit_code(), now.failure())),
        now_unix_ns);
  }
  return absl::OkStatus();
}

// Whatever it lacked, it has it: jobs that kept off it may try there again.
absl::Status Reconciler::HasStarted(const std::string& node) {
  Change change;
  change.jobs = JobsLettingBack(node, LetTry);
  if (!change.jobs.empty()) {
    RETURN_IF_ERROR(Commit(change));
    FileAgain(change.jobs);
    allocations_may_have_changed_ = true;
  }
  nodes_.in_vain().Forget(node);
  return absl::OkStatus();
}

// Whether a job whose node could not start it gives its allocation back: where it would start on
// another at once, if it waited like any other; and after some tries where another can hold it, for
// which it then waits.
bool Reconciler::GoesElsewhere(const Entry& entry, int64_t now_unix_ns) {
  const v1::Job& job = entry.job;
  const v1::JobStatus& status = job.status();
  const auto unable = [&](const std::string& node) { return IsUnable(node, status); };
  const auto one_of_ours = [&](const std::string& node) {
    return unable(node) && std::any_of(job.allocation().begin(), job.allocation().end(),
                                       [&](const auto& part) { return part.node() == node; });
  };
  if (!WouldFailAgain(status, job.allocation(), unable)) return false;
  std::vector<Holding> others = HoldingJobs(now_unix_ns);
  std::erase_if(others, [&](const Holding& held) { return held.job_id == job.id(); });
  Waiting waiting = WaitingOf(job, now_unix_ns);
  waiting.asked.waits_for_others = true;  // not for one that has failed to start it before
  queue_.Add(waiting);
  const Decision decision = Decide(others, now_unix_ns);
  queue_.Remove(job.id());
  const auto found = decision.allocations.find(job.id());
  if (found != decision.allocations.end()) {
    return !WouldFailAgain(status, found->second, one_of_ours);
  }
  if (TriesInVain(job.status()) < kUnableAfter) return false;
  Queue alone;
  alone.Add(waiting);
  const Decision once_free =
      Schedule(nodes_.Capacities(), {}, alone, options_.scheduling, now_unix_ns);
  const auto later = once_free.allocations.find(job.id());
  return later != once_free.allocations.end() && !WouldFailAgain(status, later->second, unable);
}

// Those that have kept off a node that is used again.
std::vector<v1::Job> Reconciler::JobsLettingBack(const std::string& node,
                                                 bool (*let_back)(const std::string&,
                                                                  v1::JobStatus&)) const {
  std::vector<v1::Job> jobs;
  for (const uint64_t id : keeping_off_) {
    const v1::Job& job = jobs_.at(id).job;
    if (IsUnable(node, job.status())) let_back(node, *jobs.emplace_back(job).mutable_status());
  }
  return jobs;
}

void Reconciler::FileAgain(const std::vector<v1::Job>& jobs) {
  for (const v1::Job& job : jobs) {
    Entry& entry = jobs_.at(job.id());
    File(&entry.job, job);
    entry.job = job;
  }
}

// Else whoever is next in the queue goes there, for it is free.
absl::Status Reconciler::DrainUnable(int64_t now_unix_ns) {
  // One after the other: the last is not drained.
  for (auto unable = nodes_.Unable(); !unable.empty(); unable = nodes_.Unable()) {
    RETURN_IF_ERROR(SetUse(unable.front(), now_unix_ns).status());
  }
  return absl::OkStatus();
}

}  // namespace trireme::coordinator
