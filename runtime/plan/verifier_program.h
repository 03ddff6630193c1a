// Parts of the verifier: the index of one coordinate's program, and the checks that use it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/plan/stage_facts.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();

// One program of one pipeline coordinate. Does not own the plan.
struct ProgramScope {
  const v1::Plan* plan = nullptr;
  const v1::Program* program = nullptr;
  const StageFacts* facts = nullptr;
  std::string name;       // step, evaluate, generate
  uint32_t pipeline = 0;  // the coordinate
  uint32_t micro_batches = 0;
  graph::ForwardUse use = graph::ForwardUse::kStep;
  bool training = false;  // backward, reductions and the optimizer are in it

  const v1::StagePlan& stage() const { return plan->stages(static_cast<int>(pipeline)); }
  const v1::Instruction& at(uint32_t index) const {
    return program->instructions(static_cast<int>(index));
  }
  uint32_t size() const { return static_cast<uint32_t>(program->instructions_size()); }
  uint32_t ranks() const { return plan->mesh().pipeline(); }
  uint32_t virtual_stages() const { return static_cast<uint32_t>(stage().first_block_size()); }
  uint32_t GlobalStage(uint32_t virtual_stage) const { return virtual_stage * ranks() + pipeline; }
  bool IsFirst(uint32_t virtual_stage) const { return GlobalStage(virtual_stage) == 0; }
  bool IsLast(uint32_t virtual_stage) const {
    return GlobalStage(virtual_stage) + 1 == ranks() * virtual_stages();
  }
};

// The instructions of one kind of compute of one (virtual stage, micro-batch): where, and the
// operators they cover.
struct ComputeSpan {
  uint32_t first = kNowhere;
  uint32_t last = kNowhere;
  uint32_t op_end = 0;
  bool present() const { return first != kNowhere; }
};

enum SlotField {
  kActivation,
  kStash,
  kGradientStash,
  kInput,
  kOutput,
  kGradientIn,
  kGradientOut,
  kStored,
  kSlotFields
};
constexpr std::array<v1::PoolKind, kSlotFields> kPoolOfField = {
    v1::ACTIVATION, v1::STASH,       v1::GRADIENT_STASH, v1::INPUT,
    v1::OUTPUT,     v1::GRADIENT_IN, v1::GRADIENT_OUT,   v1::STORED};

// No slot of any pool.
constexpr std::array<uint32_t, kSlotFields> NoSlots() {
  std::array<uint32_t, kSlotFields> slots{};
  for (uint32_t& slot : slots) slot = kNowhere;
  return slots;
}

// What a program does for one (virtual stage, micro-batch).
struct Cell {
  ComputeSpan forward, input_grad, weight_grad, backward;
  uint32_t send_act = kNowhere, recv_act = kNowhere, send_grad = kNowhere, recv_grad = kNowhere;
  uint32_t swap_out = kNowhere, swap_in = kNowhere;
  std::array<uint32_t, kSlotFields> slot = NoSlots();
  // Of ACTIVATION and STASH, behind the SWAP_IN.
  std::array<uint32_t, kSlotFields> slot_back = NoSlots();

  // Of the gradient that is sent on, and of all that reads what forward saved.
  const ComputeSpan& gradient() const { return backward.present() ? backward : input_grad; }
  const ComputeSpan& final_grad() const { return backward.present() ? backward : weight_grad; }
};

struct ProgramIndex {
  std::vector<uint32_t> issued_at;  // [ticket]: instruction that makes it
  std::vector<uint32_t> waited_at;  // [ticket]: its WAIT
  std::vector<Cell> cells;          // [virtual stage * micro-batches + micro-batch]

  uint32_t WaitOf(const ProgramScope& scope, uint32_t issue) const {
    return waited_at[scope.at(issue).ticket()];
  }
};

// "stage 2, step, instruction 17 (WAIT of RECV_GRAD, virtual stage 0, micro-batch 3)". `index` may
// be null.
std::string Locate(const ProgramScope& scope, uint32_t at, const ProgramIndex* index = nullptr);
std::string NameInstruction(const ProgramScope& scope, uint32_t at, const ProgramIndex* index);
absl::Status Fault(const ProgramScope& scope, uint32_t at, const std::string& what);

// Tickets, cells, operator ranges, presence and order inside one list.
absl::StatusOr<ProgramIndex> IndexProgram(const ProgramScope& scope);
// REDUCE, NORM, STEP and GATHER of every bucket.
absl::Status CheckBuckets(const ProgramScope& scope, const ProgramIndex& index);
// ZeRO-2 and ZeRO-3: the weights that operators read are there, the gradients that they write are
// reduced in every micro-batch, and no bucket that is whole lies over another.
absl::Status CheckLives(const ProgramScope& scope, const ProgramIndex& index);
// Where optimizer state is offloaded: each piece comes before its STEP and goes behind it.
absl::Status CheckSwaps(const ProgramScope& scope, const ProgramIndex& index);
// No slot of a pool holds two micro-batches at once.
absl::Status CheckSlots(const ProgramScope& scope, const ProgramIndex& index);
// All coordinates together: transfers match, and execution ends. Indexed by pipeline coordinate.
absl::Status CheckRendezvous(const std::vector<ProgramScope>& scopes,
                             const std::vector<ProgramIndex>& indexes);

}  // namespace trireme::plan
