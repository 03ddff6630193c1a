// What nodes are to have, which agents are told whole.
#include <algorithm>

#include "coordinator/job_machine/time_limit.h"
#include "coordinator/reconciler/lost_nodes.h"
#include "coordinator/reconciler/reconciler.h"

namespace trireme::coordinator {
namespace {

// Of a job from before plans' needs were stored nobody knows them: it may have asked for less.
uint64_t MemoryOfARank(const v1::ResourceRequest& resources) {
  const uint64_t planned = resources.planned_bytes_per_rank();
  return planned == 0 ? 0 : std::max(planned, resources.memory_bytes_per_rank());
}

}  // namespace

v1::DesiredAttempt Reconciler::DesiredOn(const std::string& node, const Entry& entry) const {
  const v1::Job& job = entry.job;
  v1::DesiredAttempt desired;
  desired.set_job_id(job.id());
  desired.set_attempt(job.status().attempt());
  desired.set_desired_state(ConsequencesOf(job.status()).attempt);
  desired.set_grace_seconds(job.status().stop_grace_seconds());
  const bool launcher_ended =
      ReportOf(entry, job.allocation(0).node()).phase() == v1::ATTEMPT_ENDED;
  if (launcher_ended && node != job.allocation(0).node())
    desired.set_desired_state(v1::ATTEMPT_KILL);
  v1::LaunchSpec& launch = *desired.mutable_launch();
  *launch.mutable_job() = job.spec();
  launch.set_run_folder(job.run_folder());
  *launch.mutable_allocation() = job.allocation();
  launch.set_threads_per_rank(job.resources().cpus_per_rank());
  launch.set_memory_bytes_per_rank(MemoryOfARank(job.resources()));
  launch.set_real_paths(job.real_paths());
  *launch.mutable_store() = job.launch_store();
  launch.set_key(job.launch_key());
  launch.set_snapshots_before(job.status().memory_before());
  if (const auto limit = TimeLimitOf(job.spec()); limit.count() > 0) {
    // Of before this attempt: the same as long as it lasts.
    const int64_t left = std::max<int64_t>(1, limit.count() - job.status().used_ns());
    launch.set_time_left_seconds(static_cast<double>(left) / 1e9);
  }
  if (MayBeReplaced(job)) {
    const auto end_after = LostNodeTimesOf(options_.lost_node_after).end_after;
    desired.set_end_after_seconds(static_cast<double>(end_after.count()) / 1000);
  }
  return desired;
}

v1::DesiredAttempts Reconciler::DesiredOf(const std::string& node) const {
  v1::DesiredAttempts desired;
  desired.set_revision(revision_);
  *desired.mutable_store() = identity_.At(table_.last_sequence());
  for (const uint64_t id : holding_) {
    const Entry& entry = jobs_.at(id);
    if (ConsequencesOf(entry.job.status()).attempt == v1::ATTEMPT_DESIRED_UNSPECIFIED) continue;
    if (HasPlaceOn(entry.job, node)) *desired.add_attempts() = DesiredOn(node, entry);
  }
  return desired;
}

}  // namespace trireme::coordinator
