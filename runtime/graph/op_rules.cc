#include "runtime/graph/op_rules.h"

#include "runtime/base/philox.h"

namespace trireme::graph {

OpSpec SpecOf(const LoweringScope& scope, const Node& node) {
  OpSpec spec;
  spec.kind = node.op;
  spec.dtype = scope.options.dtype;
  spec.dropout_p = node.dropout_p;
  if (node.dropout_p > 0) spec.site = base::SiteOf(node.name);
  return spec;
}

OpSpec RowSpec(const LoweringScope& scope, const Node& node) {
  OpSpec spec = SpecOf(scope, node);
  spec.rows = scope.own_rows.size();
  spec.cols = spec.x_ld = spec.y_ld = scope.graph.hidden_size;
  spec.row_begin = scope.own_rows.begin;
  spec.tokens = scope.options.tokens;
  return spec;
}

OpSpec ColumnSpec(const LoweringScope& scope, const Node& node) {
  OpSpec spec = SpecOf(scope, node);
  spec.rows = scope.rows;
  spec.cols = spec.y_ld = scope.ColumnsOf(node.output);
  spec.x_ld = scope.ColumnsOf(node.input);
  spec.tokens = scope.options.tokens;
  return spec;
}

OpSpec HeadSpec(const LoweringScope& scope, const Node& node) {
  const layout::Interval groups = scope.ShareOf(scope.graph.kv_heads);
  const int64_t group = scope.graph.heads / scope.graph.kv_heads;
  OpSpec spec = ColumnSpec(scope, node);
  spec.heads = groups.size() * group;
  spec.kv_heads = groups.size();
  spec.head_dim = scope.graph.head_dim;
  spec.head_begin = groups.begin * group;
  spec.global_heads = scope.graph.heads;
  spec.rope_theta = scope.graph.rope_theta;
  return spec;
}

template <bool kGathered>
void ForwardOnRows(StageLowering& stage, const Node& node) {
  const View x = stage.Input(node, stage.scope().stream);
  const View y = node.output == stage.scope().stage_output
                     ? stage.NewOnStream("output", BufferPool::kOutput)
                     : stage.NewOnStream(node.name, BufferPool::kTemporary, kGathered);
  stage.Add(node, Phase::kForward, {{kX, x}, {kY, y}});
  stage.SetOutput(node, y);
}
template void ForwardOnRows<true>(StageLowering& stage, const Node& node);
template void ForwardOnRows<false>(StageLowering& stage, const Node& node);

void ForwardOnColumns(StageLowering& stage, const Node& node) {
  const int64_t width = stage.scope().ColumnsOf(node.output);
  View y = stage.Input(node, Placement::kColumns);
  if (SchemaOf(node.op).Find(Phase::kForward, kX) != nullptr) {
    y = stage.New(node.name, width, Placement::kColumns);
  }
  stage.Add(node, Phase::kForward, {{kY, y}});
  stage.SetOutput(node, y);
}

void BackwardOnColumns(StageLowering& stage, const Node& node) {
  const int64_t width = stage.scope().ColumnsOf(node.input);
  const View dy = stage.OutputGradient(node, Placement::kColumns);
  if (SchemaOf(node.op).Find(Phase::kInputGrad, kDX) == nullptr) {
    stage.Add(node, Phase::kInputGrad, {{kDY, dy}});
    return stage.SetGradient(node.input, dy);
  }
  const View dx = stage.New(node.name + ".dx", width, Placement::kColumns);
  stage.Add(node, Phase::kInputGrad, {{kDY, dy}, {kDX, dx}});
  stage.SetGradient(node.input, dx);
}

}  // namespace trireme::graph
