// Nodes that can start nothing: which are drained for it, and when a job leaves one
// (docs/coordinator.md).
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/job_machine/reasons.h"
#include "coordinator/reconciler/reconciler.h"
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

}  // namespace

// Of the agent that starts its ranks: whether it could.
void Reconciler::HearStart(const Entry& entry, const std::string& node,
                           const v1::AttemptReport& before, const v1::AttemptReport& now) {
  if (node != entry.job.allocation(0).node() || before.phase() == v1::ATTEMPT_ENDED) return;
  if (HasBegun(now)) {
    if (!HasBegun(before)) nodes_.Started(node);
    return;
  }
  if (now.phase() != v1::ATTEMPT_ENDED || !now.never_started()) return;
  // No job drains a second node.
  if (entry.job.status().unstarted() >= kUnableAfter) return;
  nodes_.CouldNotStart(
      node, fmt::format("job {}: {}", entry.job.id(), EndingOf(now.exit_code(), now.failure())));
}

// Else whoever is next in the queue goes there, for it is free.
absl::Status Reconciler::DrainUnable(int64_t now_unix_ns) {
  for (const NodeUse& use : nodes_.Unable()) {
    RETURN_IF_ERROR(SetUse(use, now_unix_ns).status());
  }
  return absl::OkStatus();
}

}  // namespace trireme::coordinator
