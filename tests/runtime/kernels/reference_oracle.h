// The forward of each operator once more, in long double and straight from its definition in
// runtime/graph/op_*.cc: dense arrays, no leading dimensions, no products, no shared code with
// the kernels.
#pragma once

#include <vector>

#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {

struct OracleResult {
  std::vector<long double> y;
  std::vector<long double> stats;  // empty where the operator saves none
  long double loss = 0;            // what LossCombine adds to kDB
};

// From the operands of `memory`, before the kernel runs. spec.phase is kForward.
OracleResult Oracle(OpMemory& memory);

}  // namespace trireme::kernels
