// What the ranks of an attempt find in their run folder: job.yaml, plan.pb, schedule.svg.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// Makes the run folder, plans, writes; the same job gives the same bytes, so that it may be done
// again. A job that an older program stored has the defaults of this one. Blocks on the disk.
// `step` is called as it gets on. Errors: the planner's; Unavailable: the disk.
absl::Status WritePlanFiles(
    const v1::Job& job, const std::function<void()>& step = [] {});

}  // namespace trireme::coordinator
