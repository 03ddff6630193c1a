// Liveness: each cell keeps a slot of a pool over an interval of the list; intervals on one slot
// must not meet.
#include <algorithm>
#include <tuple>

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

struct PoolRule {
  v1::PoolKind kind;
  SlotField field;
  bool required;  // a plan without stash or activations is possible, one without boundaries is not
};

constexpr std::array<PoolRule, kSlotFields> kRules = {{{v1::ACTIVATION, kActivation, false},
                                                       {v1::STASH, kStash, false},
                                                       {v1::INPUT, kInput, true},
                                                       {v1::OUTPUT, kOutput, true},
                                                       {v1::GRADIENT_IN, kGradientIn, true},
                                                       {v1::GRADIENT_OUT, kGradientOut, true}}};

Life LifeOf(const ProgramScope& scope, const ProgramIndex& index, const Cell& cell,
            v1::PoolKind kind) {
  const uint32_t last_use = scope.training ? cell.final_grad().last : cell.forward.last;
  switch (kind) {
    case v1::ACTIVATION:
      return {.begin = cell.forward.first,
              .end = scope.training ? cell.gradient().last : cell.forward.last};
    case v1::STASH:
      return {.begin = cell.forward.first, .end = last_use};
    case v1::INPUT:
      return {.begin = cell.recv_act, .end = last_use};
    case v1::OUTPUT:
      return {.begin = cell.forward.first, .end = index.WaitOf(scope, cell.send_act)};
    case v1::GRADIENT_IN:
      return {.begin = cell.recv_grad, .end = last_use};
    default:
      return {.begin = cell.gradient().first, .end = index.WaitOf(scope, cell.send_grad)};
  }
}

const v1::Pool* PoolOf(const v1::StagePlan& stage, v1::PoolKind kind, uint32_t v) {
  for (const v1::Pool& pool : stage.pools()) {
    if (pool.kind() == kind && pool.virtual_stage() == v) return &pool;
  }
  return nullptr;
}

absl::Status CheckPool(const ProgramScope& scope, const ProgramIndex& index, const PoolRule& rule,
                       uint32_t v, std::vector<Life>& lives) {
  lives.clear();
  for (uint32_t m = 0; m < scope.micro_batches; ++m) {
    const Cell& cell = index.cells[size_t{v} * scope.micro_batches + m];
    if (cell.slot[rule.field] == kNowhere) continue;
    Life life = LifeOf(scope, index, cell, rule.kind);
    life.slot = cell.slot[rule.field];
    life.micro_batch = m;
    lives.push_back(life);
  }
  if (lives.empty()) return absl::OkStatus();
  const std::string name = v1::PoolKind_Name(rule.kind);
  const v1::Pool* pool = PoolOf(scope.stage(), rule.kind, v);
  if (pool == nullptr) {
    if (!rule.required) return absl::OkStatus();
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
    for (const PoolRule& rule : kRules) {
      RETURN_IF_ERROR(CheckPool(scope, index, rule, v, lives));
    }
  }
  return absl::OkStatus();
}

}  // namespace trireme::plan
