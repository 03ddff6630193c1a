// What the ranks of an attempt find in their run folder: job.yaml, plan.pb, schedule.svg.
#pragma once

#include "absl/status/status.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

// Makes the run folder, plans, writes; the same job gives the same bytes, so that it may be done
// again. A job that an older program stored has the defaults of this one. Blocks on the disk.
// Errors: the planner's; Unavailable: the disk.
absl::Status WritePlanFiles(const v1::Job& job);

}  // namespace trireme::coordinator
