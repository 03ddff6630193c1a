// Liveness: each cell keeps a slot of a pool over an interval of the list; intervals on one slot
// must not meet.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/plan/verifier_program.h"

namespace trireme::plan {
namespace {

struct Life {
  uint32_t begin = 0;  // first instruction that may write the slot
  uint32_t end = 0;    // last instruction that may read it
  uint32_t slot = 0;
  uint32_t micro_batch = 0;
};

bool MovesAway(SlotField field) { return field == kActivation || field == kStash; }

// From the operators alone: the lists that touch a pool, and the transfers in and out of it. Where
// a SWAP cuts a life in two, the part before it, or the one behind it.
Life LifeOf(const ProgramScope& scope, const ProgramIndex& index, const Cell& cell, uint32_t v,
            SlotField field, bool is_back) {
  Life life{.begin = kNowhere};
  const auto include = [&life](uint32_t first, uint32_t last) {
    life.begin = std::min(life.begin, first);
    life.end = std::max(life.end, last);
  };
  const uint8_t touched_by = scope.facts->virtual_stages[v].touched_by[kPoolOfField[field]];
  const std::pair<v1::InstructionKind, const ComputeSpan&> spans[] = {{v1::F, cell.forward},
                                                                      {v1::I, cell.input_grad},
                                                                      {v1::W, cell.weight_grad},
                                                                      {v1::B, cell.backward}};
  for (const auto& [kind, span] : spans) {
    const bool is_behind = kind != v1::F && cell.swap_in != kNowhere && MovesAway(field);
    if (is_behind != is_back) continue;
    if (span.present() && (touched_by & ListBit(kind)) != 0) include(span.first, span.last);
  }
  if (MovesAway(field) && cell.swap_in != kNowhere) {
    if (is_back) {
      include(cell.swap_in, index.WaitOf(scope, cell.swap_in));
    } else {
      include(cell.swap_out, index.WaitOf(scope, cell.swap_out));
    }
  }
  if (field == kStored) include(cell.swap_out, index.WaitOf(scope, cell.swap_in));
  if (field == kInput) include(cell.recv_act, index.WaitOf(scope, cell.recv_act));
  if (field == kOutput) include(cell.send_act, index.WaitOf(scope, cell.send_act));
  if (field == kGradientIn) include(cell.recv_grad, index.WaitOf(scope, cell.recv_grad));
  if (field == kGradientOut) include(cell.send_grad, index.WaitOf(scope, cell.send_grad));
  return life;
}

const v1::Pool* PoolOf(const v1::StagePlan& stage, v1::PoolKind kind, uint32_t v) {
  for (const v1::Pool& pool : stage.pools()) {
    if (pool.kind() == kind && pool.virtual_stage() == v) return &pool;
  }
  return nullptr;
}

absl::Status CheckPool(const ProgramScope& scope, const ProgramIndex& index, SlotField field,
                       uint32_t v, std::vector<Life>& lives) {
  lives.clear();
  for (uint32_t m = 0; m < scope.micro_batches; ++m) {
    const Cell& cell = index.cells[size_t{v} * scope.micro_batches + m];
    for (const bool is_back : {false, true}) {
      const uint32_t slot = is_back ? cell.slot_back[field] : cell.slot[field];
      if (slot == kNowhere) continue;
      Life life = LifeOf(scope, index, cell, v, field, is_back);
      life.slot = slot;
      life.micro_batch = m;
      lives.push_back(life);
    }
  }
  if (lives.empty()) return absl::OkStatus();
  const std::string name = v1::PoolKind_Name(kPoolOfField[field]);
  const v1::Pool* pool = PoolOf(scope.stage(), kPoolOfField[field], v);
  if (pool == nullptr) {
    return Fault(scope, lives[0].begin,
                 absl::StrCat("there is no pool ", name, " of virtual stage ", v));
  }
  std::sort(lives.begin(), lives.end(), [](const Life& a, const Life& b) {
    return std::tie(a.slot, a.begin) < std::tie(b.slot, b.begin);
  });
  const Life* held = nullptr;
  for (const Life& life : lives) {
    if (life.slot >= pool->slots()) {
      return Fault(
          scope, life.begin,
          absl::StrCat("slot ", life.slot, " of the pool ", name, ", which has ", pool->slots()));
    }
    if (held != nullptr && held->slot == life.slot && held->end >= life.begin) {
      return Fault(scope, life.begin,
                   absl::StrCat("writes slot ", life.slot, " of the pool ", name,
                                " of virtual stage ", v, " while micro-batch ", held->micro_batch,
                                " still needs it, until ", Locate(scope, held->end, &index)));
    }
    held = &life;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSlots(const ProgramScope& scope, const ProgramIndex& index) {
  std::vector<Life> lives;
  for (uint32_t v = 0; v < scope.virtual_stages(); ++v) {
    for (int field = 0; field < kSlotFields; ++field) {
      RETURN_IF_ERROR(CheckPool(scope, index, static_cast<SlotField>(field), v, lives));
    }
  }
  return absl::OkStatus();
}

}  // namespace trireme::plan
