#include "coordinator/reconciler/user_caps.h"

#include <fmt/format.h>

#include "coordinator/job_machine/job_machine.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

bool Counts(const v1::Job* job) {
  return job != nullptr && !job->uncapped() && !HasEnded(job->status().state());
}

bool CountsEnded(const v1::Job* job) {
  return job != nullptr && !job->uncapped() && HasEnded(job->status().state());
}

bool IsQueued(const v1::Job* job) {
  return Counts(job) && !ConsequencesOf(job->status()).holds_allocation;
}

}  // namespace

void UserUsage::File(const v1::Job* before, const v1::Job& job) {
  if (CountsEnded(before) != CountsEnded(&job)) AddEnded(job, CountsEnded(&job));
  if (Counts(before) == Counts(&job) && IsQueued(before) == IsQueued(&job)) return;
  Usage& usage = users_[job.owner()];
  if (IsQueued(before)) --usage.queued_jobs;
  if (IsQueued(&job)) ++usage.queued_jobs;
  // A spec never changes once it is stored.
  if (Counts(before) && !Counts(&job)) usage.spec_bytes -= job.spec().ByteSizeLong();
  if (!Counts(before) && Counts(&job)) usage.spec_bytes += job.spec().ByteSizeLong();
  Tidy(job.owner());
}

void UserUsage::AddEnded(const v1::Job& job, bool more) {
  uint64_t& bytes = users_[job.owner()].ended_bytes;
  const uint64_t own = job.spec().ByteSizeLong();
  bytes = more ? bytes + own : bytes - own;
  if (caps_.spec_bytes > 0 && bytes > caps_.spec_bytes) {
    beyond_.insert(job.owner());
  } else {
    beyond_.erase(job.owner());
  }
  Tidy(job.owner());
}

void UserUsage::Forget(const v1::Job& job) {
  if (CountsEnded(&job)) AddEnded(job, false);
}

std::pair<std::string, uint64_t> UserUsage::Beyond() const {
  if (beyond_.empty()) return {};
  const uint64_t bytes = users_.at(*beyond_.begin()).ended_bytes;
  return {*beyond_.begin(), bytes - (caps_.spec_bytes - caps_.spec_bytes / 10)};
}

void UserUsage::Tidy(const std::string& user) {
  const auto found = users_.find(user);
  if (found == users_.end()) return;
  const Usage& usage = found->second;
  if (usage.queued_jobs == 0 && usage.spec_bytes == 0 && usage.ended_bytes == 0) {
    users_.erase(found);
  }
}

absl::Status UserUsage::MayAdd(const v1::Job& job) const {
  if (job.uncapped()) return absl::OkStatus();
  const auto found = users_.find(job.owner());
  const Usage usage = found == users_.end() ? Usage{} : found->second;
  if (caps_.queued_jobs > 0 && usage.queued_jobs >= caps_.queued_jobs) {
    return absl::ResourceExhaustedError(
        fmt::format("{} has {} that wait or are paused, as many as the daemon lets one user have "
                    "(--user-queued-jobs {}); submit again when some have started, or cancel some",
                    job.owner(), base::Counted(static_cast<int64_t>(usage.queued_jobs), "job"),
                    caps_.queued_jobs));
  }
  const uint64_t more = job.spec().ByteSizeLong();
  if (caps_.spec_bytes > 0 && usage.spec_bytes + more > caps_.spec_bytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "this job's spec has {} bytes, and those of {}'s jobs that have not ended have {} of {} "
        "that the daemon keeps for one user (--user-spec-bytes); submit again when some have "
        "ended, cancel some, or name fewer files",
        more, job.owner(), usage.spec_bytes, caps_.spec_bytes));
  }
  return absl::OkStatus();
}

}  // namespace trireme::coordinator
