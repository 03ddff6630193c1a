// What the operators of a pipeline coordinate ask of its plan: slots, state, lists, which operator
// writes which bucket. Derived from the lowered operators alone, by no code that makes plans: the
// other side of the verifier's comparisons.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "runtime/plan/lowered_stage.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Of the list that an instruction of this kind runs: F, I, W or B.
constexpr uint8_t ListBit(v1::InstructionKind kind) { return static_cast<uint8_t>(1 << kind); }
static_assert(v1::B < 8);

struct VirtualStageFacts {
  // By PoolKind, of the pools of a virtual stage: bytes of a slot that the buffers reach into, the
  // largest over the tensor coordinates.
  std::array<uint64_t, v1::PoolKind_ARRAYSIZE> slot_bytes{};
  // By PoolKind: the lists whose operators read or write its buffers, as bits of ListBit. The life
  // of a slot follows from it: no list before the first of them, none after the last.
  std::array<uint8_t, v1::PoolKind_ARRAYSIZE> touched_by{};
  // Lengths of the lists, F I W B; an empty one where the backward is not of that kind. Of F by
  // graph::ForwardUse, what that use runs of it.
  std::array<uint32_t, graph::kForwardUses> forward{};
  uint32_t input_grad = 0, weight_grad = 0, backward = 0;
  // (operator, bucket) of each gradient written, ascending; operators count in the list of W, or of
  // B where the backward is not split, and in that of I.
  using Writes = std::vector<std::pair<uint32_t, uint32_t>>;
  Writes writes, input_grad_writes;
  // Buckets of which this list writes some parameters and not others, by instruction kind; for each
  // the operator that begins to.
  std::array<Writes, v1::B + 1> partly;
  // (operator, bucket) of each parameter read, ascending, by instruction kind: F, I, W or B.
  std::array<Writes, v1::B + 1> reads;
  // By instructions of this kind.
  const Writes& WritesOf(v1::InstructionKind kind) const {
    static const Writes kNone;
    if (kind == v1::I) return input_grad_writes;
    return kind == v1::W || kind == v1::B ? writes : kNone;
  }
};

struct StageFacts {
  std::vector<VirtualStageFacts> virtual_stages;
  // By PoolKind: bytes of the pools that the virtual stages share; of one slot for TOKENS.
  std::array<uint64_t, v1::PoolKind_ARRAYSIZE> pool_bytes{};
  std::vector<v1::Bucket> buckets;
  std::vector<bool> coded_buckets;
  bool code_messages = false;  // of the step
};

// Of one pipeline coordinate. The plan's mesh and blocks must be sound. Internal, naming stage,
// coordinate and operator, where the tensor coordinates would run different lists: their
// collectives could not meet.
absl::StatusOr<StageFacts> FactsOf(const v1::Plan& plan, const LoweredStage& lowered,
                                   uint32_t pipeline);
// By pipeline coordinate.
absl::StatusOr<std::vector<StageFacts>> FactsOf(const v1::Plan& plan,
                                                const graph::ModelGraph& graph);

}  // namespace trireme::plan
