#include "coordinator/job_machine/time_limit.h"

#include <algorithm>

namespace trireme::coordinator {

std::chrono::nanoseconds TimeLimitOf(const v1::JobSpec& job) {
  constexpr double kMostSeconds = 1e9;  // as the rules of a job have it
  const double seconds = job.resources().time_limit_seconds();
  if (!(seconds > 0)) return std::chrono::nanoseconds(0);
  const std::chrono::duration<double> limit(std::min(seconds, kMostSeconds));
  return std::max(std::chrono::nanoseconds(1),
                  std::chrono::duration_cast<std::chrono::nanoseconds>(limit));
}

int64_t UsedNs(const v1::JobStatus& status, int64_t now_unix_ns) {
  if (status.counts_since_unix_ns() == 0) return status.used_ns();
  return status.used_ns() + std::max<int64_t>(0, now_unix_ns - status.counts_since_unix_ns());
}

int64_t TimeIsUpUnixNs(const v1::JobStatus& status, std::chrono::nanoseconds limit) {
  if (limit.count() == 0 || status.counts_since_unix_ns() == 0) return 0;
  return status.counts_since_unix_ns() + std::max<int64_t>(0, limit.count() - status.used_ns());
}

void FollowClock(int64_t by_ns, v1::JobStatus& status) {
  if (status.counts_since_unix_ns() == 0) return;
  // 0 has a meaning of its own.
  status.set_counts_since_unix_ns(std::max<int64_t>(1, status.counts_since_unix_ns() + by_ns));
}

}  // namespace trireme::coordinator
