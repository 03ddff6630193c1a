// ResidualAdd:
//   F: y = residual + dropout(x + b)    (residual, b may be null)
//   I: dx = dropout mask applied to dy (not emitted where dropout_p == 0: an alias)
//   W: db = column sums of dropout-masked dy (db may be null)
// Element index of dropout ((sample*tokens + t) * cols + c)
#include "runtime/graph/op_rules.h"

namespace trireme::graph {
namespace {

void BackwardResidualAdd(StageLowering& stage, const Node& node) {
  const View dy = stage.OutputGradient(node, stage.scope().stream);
  if (node.bias != kNone) stage.Add(node, Phase::kWeightGrad, {{kDY, dy}});
  if (node.residual != kNone) stage.SetGradient(node.residual, dy);
  if (node.dropout_p == 0) return stage.SetGradient(node.input, dy);
  const View dx = stage.NewOnStream(node.name + ".dx", BufferPool::kTemporary, /*gathered=*/true);
  stage.Add(node, Phase::kInputGrad, {{kDY, dy}, {kDX, dx}});
  stage.SetGradient(node.input, dx);
}

}  // namespace

constinit const OpSchema kResidualAddSchema = {
    .name = "ResidualAdd",
    .operands = {{Read(kX, XRows), Optional(Learned(kB, OneRow)), Optional(Read(kResidual, YRows)),
                  Write(kY, YRows)},
                 {Read(kDY, YRows), Write(kDX, XRows)},
                 {Read(kDY, YRows), Optional(GradientOf(kDB, OneRow))}},
    .recompute = Recompute::kInBlock,
    .spec = RowSpec,
    .forward = ForwardOnRows<false>,
    .backward = BackwardResidualAdd};

}  // namespace trireme::graph
