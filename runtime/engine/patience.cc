#include "runtime/engine/patience.h"

#include "runtime/plan/offload.h"
#include "runtime/plan/state_layout.h"

namespace trireme::engine {

bool WaitsForSwaps(const v1::Plan& plan) {
  return plan::OffloadsState(plan.job()) || plan::OffloadsActivations(plan.job());
}

bool MeetsReplicas(const v1::Plan& plan, v1::InstructionKind kind) {
  // A stage that waits for its disk is behind the others as one that waits for its replicas is.
  return WaitsForSwaps(plan) || plan::ZeroStage(plan) >= 2 || kind == v1::REDUCE ||
         kind == v1::GATHER;
}

}  // namespace trireme::engine
