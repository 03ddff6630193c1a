// Memory of one pipeline coordinate: pools, slots and the exact size of the arena.
#pragma once

#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/plan/program_builder.h"
#include "runtime/plan/state_layout.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Fills stage.pools and stage.arena_bytes. Pools begin on pages; sizes are those of tensor
// coordinate 0, the largest.
void PlanMemory(const v1::Plan& plan, v1::StagePlan& stage,
                const std::vector<const graph::StageOps*>& ops,
                const std::vector<SlotCounts>& slots, const StateLayout& state);

// Scratch that the job's kernels may use.
uint64_t ScratchBytes(const v1::JobSpec& job);

}  // namespace trireme::plan
