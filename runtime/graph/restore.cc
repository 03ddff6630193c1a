#include "runtime/graph/restore.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/graph/op_schema.h"

namespace trireme::graph {

namespace {

using OpList = std::vector<LoweredOp>;

constexpr Operand kOfForward[] = {kX, kW, kB, kStats};  // what an output is made of

bool Reads(const LoweredOp& op, int32_t buffer) {
  return std::any_of(op.operand.begin(), op.operand.end(), [&](const OperandRef& ref) {
    return ref.space == Space::kBuffer && ref.id == buffer;
  });
}

bool IsRestorable(const LoweredOp& op) {
  const OperandSchema* restored = SchemaOf(op.spec.kind).Find(Phase::kInputGrad, kY);
  return op.spec.phase == Phase::kForward && restored != nullptr && restored->optional;
}

bool IsInputGradOf(const LoweredOp& op, const LoweredOp& forward) {
  return op.spec.kind == forward.spec.kind && op.spec.phase == Phase::kInputGrad &&
         op.operand[kY].space == Space::kNone && op.block == forward.block &&
         std::all_of(std::begin(kOfForward), std::end(kOfForward),
                     [&](Operand name) { return op.operand[name] == forward.operand[name]; });
}

bool Writes(const LoweredOp& op, const OperandRef& ref) {
  for (const OperandSchema& operand : SchemaOf(op.spec.kind).Operands(op.spec.phase)) {
    const OperandRef& own = op.operand[operand.name];
    if (operand.access != Access::kRead && own.space == ref.space && own.id == ref.id) return true;
  }
  return false;
}

// Whether `op` writes what `other` touches; gradients that both add to are that too.
bool Disturbs(const LoweredOp& op, const LoweredOp& other) {
  return std::any_of(other.operand.begin(), other.operand.end(), [&](const OperandRef& ref) {
    return ref.space != Space::kNone && Writes(op, ref);
  });
}

class OutputRestorer {
 public:
  explicit OutputRestorer(StageOps& stage) : stage_(stage) {}

  void Run() {
    for (const LoweredOp& op : stage_.forward) {
      if (IsRestorable(op)) Restore(op);
    }
  }

 private:
  OpList& InputGrads() { return stage_.backward.empty() ? stage_.input_grad : stage_.backward; }

  bool OnlyWrittenBy(const LoweredOp& forward) const {
    return std::all_of(stage_.forward.begin(), stage_.forward.end(), [&](const LoweredOp& op) {
      return &op == &forward || !Writes(op, forward.operand[kY]);
    });
  }

  // Puts the weight-grads of `list` that read `buffer` behind the operator at `restorer`. Nothing
  // where one of them cannot go there; else where the operator is then.
  std::optional<size_t> MoveReaders(OpList& list, int32_t buffer, size_t restorer) {
    OpList moved = list;
    size_t at = restorer;
    for (size_t index = restorer; index-- > 0;) {
      if (!Reads(moved[index], buffer)) continue;
      for (size_t next = index + 1; next <= at; ++next) {
        if (Disturbs(moved[next], moved[index]) || Disturbs(moved[index], moved[next])) {
          return std::nullopt;
        }
      }
      std::rotate(moved.begin() + index, moved.begin() + index + 1, moved.begin() + at + 1);
      --at;
    }
    list = std::move(moved);
    return at;
  }

  void Restore(const LoweredOp& forward) {
    const OperandRef& y = forward.operand[kY];
    if (stage_.buffers[y.id].pool <= BufferPool::kGradientOut || !OnlyWrittenBy(forward)) {
      return;
    }
    bool read = false;
    for (OpList* list : {&stage_.backward, &stage_.input_grad, &stage_.weight_grad}) {
      for (const LoweredOp& op : *list) {
        if (!Reads(op, y.id)) continue;
        if (op.spec.phase != Phase::kWeightGrad || op.block != forward.block) return;
        read = true;
      }
    }
    OpList& list = InputGrads();
    const auto restorer = std::find_if(
        list.begin(), list.end(), [&](const LoweredOp& op) { return IsInputGradOf(op, forward); });
    if (!read || restorer == list.end()) return;
    const auto at = MoveReaders(list, y.id, static_cast<size_t>(restorer - list.begin()));
    if (at.has_value()) UseRestored(y, list[*at]);
  }

  void UseRestored(const OperandRef& y, LoweredOp& restorer) {
    Buffer restored = stage_.buffers[y.id];
    restored.name += ".restored";
    const auto id = static_cast<int32_t>(stage_.buffers.size());
    stage_.buffers.push_back(std::move(restored));
    for (OpList* readers : {&stage_.backward, &stage_.input_grad, &stage_.weight_grad}) {
      for (LoweredOp& op : *readers) {
        for (OperandRef& ref : op.operand) {
          if (ref.space == Space::kBuffer && ref.id == y.id) ref.id = id;
        }
      }
    }
    restorer.operand[kY] = {Space::kBuffer, id, y.offset};
  }

  StageOps& stage_;
};

}  // namespace

void RestoreOutputs(StageOps& stage) { OutputRestorer(stage).Run(); }

}  // namespace trireme::graph
