#include "runtime/benchmark/roofline.h"

#include <algorithm>
#include <cstdint>

#include "runtime/graph/op_schema.h"

namespace trireme::benchmark {
namespace {
using graph::Access;
using graph::OpKind;

bool LooksUp(OpKind kind) {
  return kind == OpKind::kEmbedding || kind == OpKind::kPositionEmbedding;
}

}  // namespace

double LeastBytes(const graph::OpSpec& spec, bool with_base) {
  double bytes = 0;
  for (const graph::OperandSchema& operand : graph::SchemaOf(spec.kind).Operands(spec.phase)) {
    if (operand.shape == nullptr || (operand.name == graph::kBase && !with_base)) continue;
    // A restored output, and the bias it takes, spare memory; no gradient needs them.
    if (spec.phase == graph::Phase::kInputGrad && operand.optional && operand.name != graph::kBase)
      continue;
    const graph::Shape shape = operand.shape(spec);
    int64_t rows = shape.rows;
    const bool table = operand.name == graph::kW || operand.name == graph::kDW;
    if (table && LooksUp(spec.kind)) rows = std::min(rows, spec.rows);
    const double once = static_cast<double>(rows * shape.cols) *
                        static_cast<double>(tensor::SizeOf(operand.DTypeIn(spec)));
    bytes += operand.access == Access::kReadWrite ? 2 * once : once;
  }
  return bytes;
}

double LeastBytes(const graph::LoweredOp& op) {
  return LeastBytes(op.spec, op.operand[graph::kBase].space != graph::Space::kNone);
}

StepWork WorkOf(const graph::StageOps& stage) {
  StepWork work;
  const auto add = [&](const std::vector<graph::LoweredOp>& list, size_t end) {
    for (size_t index = 0; index < end; ++index) {
      const graph::LoweredOp& op = list[index];
      if (op.is_collective()) continue;
      work.flops += op.flops;
      if (op.flops == 0) work.bytes += LeastBytes(op);
    }
  };
  // Behind it other programs go on; a step's head is in its backward.
  add(stage.forward, stage.ForwardEnd(graph::ForwardUse::kStep));
  for (const auto* list : {&stage.backward, &stage.input_grad, &stage.weight_grad}) {
    add(*list, list->size());
  }
  return work;
}

}  // namespace trireme::benchmark
