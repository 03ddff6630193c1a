// Restoring: a pass over a lowered stage. The input-grad of an activation or a norm reads all that
// its output is made of, so it gives the output once more, and the weight-grads that want it read
// that. Forward's is a temporary then: no micro-batch in flight keeps it, at the price of one write
// of what the next product reads at once.
#pragma once

#include "runtime/graph/lowering.h"

namespace trireme::graph {

// Weight-grads move behind the input-grad whose output they read; what they add to keeps its order.
// An output stays as it is where another operator of backward, another block or a collective has a
// part in it, or where a weight-grad cannot move. Same bits. To be called before RecomputeForward.
void RestoreOutputs(StageOps& stage);

}  // namespace trireme::graph
