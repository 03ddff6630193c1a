// What one pipeline coordinate runs and holds, lowered once and passed on: to whoever makes a plan,
// proves it, or runs it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/state_layout.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

struct LoweredStage {
  // By tensor coordinate and virtual stage.
  std::vector<std::vector<graph::StageOps>> ops;
  StateLayout state;  // the same for every data and tensor coordinate
};

// `plan` needs its job, mesh and blocks.
LoweredStage LowerStage(const v1::Plan& plan, const graph::ModelGraph& graph, uint32_t pipeline);
// The same of one rank: `ops` holds its own coordinate's alone.
LoweredStage LowerForRank(const v1::Plan& plan, const graph::ModelGraph& graph,
                          const Coordinates& at);

}  // namespace trireme::plan
