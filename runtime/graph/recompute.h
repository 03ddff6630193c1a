// Recomputing: a pass over a lowered stage. Backward begins a block by running again the operators
// of its forward whose results it needs and forward has not kept.
#pragma once

#include <vector>

#include "runtime/graph/lowering.h"

namespace trireme::graph {

// `modes`: by block of the model; empty: none. Buffers that backward makes again are new ones, so
// forward's are temporaries. Operators are copied as they are, with their dropout and their
// collectives: same bits. To be called before AssignPools.
void RecomputeForward(StageOps& stage, const std::vector<RecomputeMode>& modes);

}  // namespace trireme::graph
