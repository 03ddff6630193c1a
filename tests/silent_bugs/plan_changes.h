// Changes of a plan behind the planner, as a bug in one of its passes would make them.
#pragma once

#include <cstdint>

#include "trireme/v1/plan.pb.h"

namespace trireme::silent_bugs {

// No bucket is summed over `axis`.
void ForgetAxis(v1::Plan& plan, v1::ReduceAxis axis);
// The first stage neither issues nor awaits the REDUCE of a bucket.
void DropReduce(v1::Plan& plan, uint32_t bucket);
void DropSteps(v1::Plan& plan);
// Each GATHER, and its WAIT, in front of the first STEP: it brings the weights of the step before.
void GatherBeforeSteps(v1::Plan& plan);
// The first WAIT for a REDUCE, behind the last computation.
void AwaitSumLate(v1::Plan& plan);
// Two pools from the same byte on.
void LayOver(v1::Plan& plan, v1::PoolKind pool, v1::PoolKind other);
// The last stage ends one block early.
void DropLastLayer(v1::Plan& plan);

}  // namespace trireme::silent_bugs
