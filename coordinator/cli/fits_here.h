// Whether a plan's ranks fit into the memory of this one machine, and can offload here.
#pragma once

#include "absl/status/status.h"
#include "runtime/base/memory_here.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::cli {

// ResourceExhausted if the arenas of all `ranks` are more than `memory` leaves, by the machine or
// by the limit of a control group, which it then names; and the smallest change by which they would
// fit (runtime/plan/fit.h). The ranks check again, each for its machine; this keeps a thousand of
// them from starting first.
absl::Status CheckFitsHere(const v1::Plan& plan, int ranks, const base::MemoryHere& memory);

// The error that the ranks would have (tensor::SwapFile), where the plan offloads to files and none
// can be made in the folder that the job names. Nothing is left there.
absl::Status CheckOffloadsHere(const v1::Plan& plan);

}  // namespace trireme::cli
