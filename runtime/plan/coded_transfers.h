// Which transfers of a plan are coded within an error bound (JobSpec.compression): by what all
// ranks of a group, and both sides of a message, know alike.
#pragma once

#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/plan/state_layout.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Whether values of this parameter may be coded in the sum of its gradient: a matrix. Norms and
// biases are few and sensitive.
bool CodesGradientOf(const graph::Parameter& parameter);

// By bucket: large enough, summed over replicas, and with a parameter that may be coded. `plan`
// needs job and mesh.
std::vector<bool> CodedBuckets(const v1::Plan& plan, const graph::ModelGraph& graph,
                               const StateLayout& state);
// Whether the activations and gradients at the borders of this virtual stage are coded, in
// training.
bool CodesMessages(const v1::Plan& plan, const graph::StageOps& ops);

}  // namespace trireme::plan
