// What a job has used of resources.time_limit_seconds. It counts by the wall clock, since ranks
// outlive the daemon: from the launch of an attempt (where another queue holds it, as Slurm's, from
// when all ranks run) until nothing is left of it, or until it is told to stop for this.
#pragma once

#include <chrono>
#include <cstdint>

#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// 0: none.
std::chrono::nanoseconds TimeLimitOf(const v1::JobSpec& job);

// Nothing is counted for a clock that is behind the one of before.
int64_t UsedNs(const v1::JobStatus& status, int64_t now_unix_ns);

// When `limit` will be used up if the attempt runs on; 0: it does not count, or there is none.
int64_t TimeIsUpUnixNs(const v1::JobStatus& status, std::chrono::nanoseconds limit);

// The same by a clock that somebody has set forward by so much.
void FollowClock(int64_t by_ns, v1::JobStatus& status);

}  // namespace trireme::coordinator
