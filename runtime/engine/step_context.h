// What of a step every operator may read.
#pragma once

#include <cstdint>

namespace trireme::engine {

struct StepContext {
  uint64_t seed = 0;
  uint64_t step = 0;
  bool training = true;
  int64_t first_sample = 0;  // of this replica, index in the global batch
  int64_t position = 0;      // row whose next token is wanted (LoweredOp::at_position)
};

}  // namespace trireme::engine
