// Which transfers of a plan are coded, within an error bound (JobSpec.compression) or as bf16
// (training.gradient_transfer): by what all ranks of a group, and both sides of a message, know
// alike.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/plan/state_layout.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Whether coded sums of gradients travel as bf16, else within a bound.
bool SumsTravelAsBf16(const v1::JobSpec& job);
// By bucket: large enough, and summed over replicas. `plan` needs job and mesh.
std::vector<bool> CodedBuckets(const v1::Plan& plan, const StateLayout& state);
// Whether the activations and gradients at the borders of this virtual stage are coded, in
// training.
bool CodesMessages(const v1::Plan& plan, const graph::StageOps& ops);

bool IsMessage(const v1::Instruction& instruction);
bool IsSend(const v1::Instruction& instruction);

// What coding asks of the groups of a rank.
struct CodedPeaks {
  bool sums = false;    // sums over the replicas are coded
  size_t messages = 0;  // most coded messages of one direction under way at once
};
CodedPeaks CodedPeaksOf(const v1::Program& step);

}  // namespace trireme::plan
