// What the tasks of a program tell each other and, at its end, the host: the pool SCALARS, of which
// the host has a mirror. LOAD brings it to the device, and it comes back with the program's end, so
// that the host waits once a step.
#pragma once

#include <cstddef>
#include <type_traits>

#include "runtime/engine/replicas.h"
#include "runtime/plan/memory_plan.h"

namespace trireme::engine {

// What NORM's one reduction carries.
enum NormField : size_t {
  kSumOfSquares,
  kLossSum,
  kCounted,
  kNotFinite,
  kStopVotes,
  kSumsMeasured,
  kSumsLarge,
  kMessagesMeasured,
  kMessagesLarge,
  kSharedTime,
  kLearningRate,
  kReplicas,  // ReplicaCheck::Sums
  kNormFields = kReplicas + ReplicaCheck::kSums
};

struct StepBlock {
  double loss_sum = 0;     // of this rank's micro-batches; the first, as Space::kLossSum says
  double counted = 0;      // tokens of this replica, in training of all of them
  double loss_scale = 0;   // 1 / counted
  double own_squares = 0;  // this rank's part of kSumOfSquares
  double clip_scale = 1;   // of the gradients, on their way into the update
  double updates = 0;      // 0: STEP leaves everything as it is
  double norm[kNormFields] = {};
};
static_assert(std::is_trivially_copyable_v<StepBlock> && sizeof(StepBlock) <= plan::kScalarBytes);

}  // namespace trireme::engine
