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
  for (const auto* list :
       {&stage.forward, &stage.backward, &stage.input_grad, &stage.weight_grad}) {
    for (const graph::LoweredOp& op : *list) {
      if (op.is_collective()) continue;
      work.flops += op.flops;
      if (op.flops == 0) work.bytes += LeastBytes(op);
    }
  }
  return work;
}

}  // namespace trireme::benchmark
