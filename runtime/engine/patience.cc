#include "runtime/engine/patience.h"

#include "runtime/plan/state_layout.h"

namespace trireme::engine {

bool MeetsReplicas(const v1::Plan& plan, v1::InstructionKind kind) {
  return plan::ZeroStage(plan) >= 2 || kind == v1::REDUCE || kind == v1::GATHER;
}

}  // namespace trireme::engine
