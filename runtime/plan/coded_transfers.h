// Which transfers of a plan are coded within an error bound (JobSpec.compression): by what all
// ranks of a group, and both sides of a message, know alike.
#pragma once

#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/plan/state_layout.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// By bucket: large enough, and summed over replicas. `plan` needs job and mesh.
std::vector<bool> CodedBuckets(const v1::Plan& plan, const StateLayout& state);
// Whether the activations and gradients at the borders of this virtual stage are coded, in
// training.
bool CodesMessages(const v1::Plan& plan, const graph::StageOps& ops);

}  // namespace trireme::plan
