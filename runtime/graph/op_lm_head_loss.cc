// LmHeadLoss:
//   F: y = logits [rows, cols] = x * W (cols = vocab_rows); stats[r] = (max, sum exp(logit - max),
//      logit of the target, 0 where it is not local) over the local vocabulary
//   I: logits in y become (softmax(y) - onehot) * loss_scale (0 for rows not counted), softmax by
//      kBase = lse[rows]; dx = that * W^T
//   W: dw = x^T * y (y is dlogits by now)
// LossCombine:
//   F: x = stats of all tensor ranks [tensor_ranks][rows][3]; y = lse[rows];
//      kDB (f64[1]) += sum over counted rows of (lse - target logit)       (not scaled)
#include "runtime/graph/op_rules.h"

namespace trireme::graph {
namespace {

constexpr int64_t kShare = 3;  // numbers in the statistics of a row

constexpr Shape SharesOfAll(const OpSpec& spec) {
  return Dense(spec.tensor_ranks * spec.rows, kShare);
}
constexpr Shape OneNumber(const OpSpec&) { return Dense(1, 1); }

OpSpec LossSpec(const LoweringScope& scope, const Node& node) {
  const layout::Interval vocabulary = scope.ShareOf(scope.graph.vocab_size);
  OpSpec spec = SpecOf(scope, node);
  spec.rows = scope.rows;
  spec.inner = spec.x_ld = scope.graph.hidden_size;
  spec.cols = spec.y_ld = spec.vocab_rows = vocabulary.size();
  spec.vocab_begin = vocabulary.begin;
  spec.weight_layout = node.weight_layout;
  spec.tensor_ranks = scope.options.tensor_size;
  return spec;
}

// The logits get no gradient from another node; in its place stand their log-sum-exps.
void ForwardLoss(StageLowering& stage, const Node& node) {
  const LoweringScope& scope = stage.scope();
  const int64_t ranks = scope.options.tensor_size;
  const View x = stage.Input(node, Placement::kReplicate);
  const View logits =
      stage.New(node.name + ".logits", scope.ColumnsOf(node.output), Placement::kColumns);
  const View all =
      stage.New(node.name + ".stats", ranks * kShare, Placement::kReplicate, Stored::kAccumulator);
  View own = all;
  own.offset = scope.options.tensor_index * scope.rows * kShare;
  stage.Add(node, Phase::kForward, {{kX, x}, {kY, logits}, {kStats, own}});
  stage.ops().logits_buffer = logits.buffer;
  stage.SetOutput(node, logits);
  if (ranks > 1) {
    stage.AddCollective(stage.ops().forward, OpKind::kAllGather, all.buffer, node.name + ".stats",
                        {ranks * scope.rows, kShare});
  }
  const View lse = stage.New(node.name + ".lse", 1, Placement::kReplicate, Stored::kAccumulator);
  Node combine = node;
  combine.op = OpKind::kLossCombine;
  combine.name += ".combine";
  stage.Add(combine, Phase::kForward, {{kX, all}, {kY, lse}});
  stage.SetGradient(node.output, lse);
}

void BackwardLoss(StageLowering& stage, const Node& node) {
  const int64_t width = stage.scope().graph.hidden_size;
  const View dx = stage.New(node.name + ".dx", width, Placement::kPartial);
  stage.Add(node, Phase::kInputGrad, {{kBase, stage.Gradient(node.output)}, {kDX, dx}});
  stage.Add(node, Phase::kWeightGrad, {{kX, stage.Input(node, Placement::kReplicate)}});
  stage.SetGradient(node.input, dx);
}

}  // namespace

constinit const OpSchema kLmHeadLossSchema = {
    .name = "LmHeadLoss",
    .operands = {{Read(kX, InnerRows), Learned(kW, Factor), TokensIn(Space::kTargets),
                  Write(kY, YRows), Wide(Write(kStats, PerRow<kShare>))},
                 {InPlace(kY, YRows), Learned(kW, Factor), Wide(Read(kBase, PerRow<1>)),
                  TokensIn(Space::kTargets), Write(kDX, InnerRows)},
                 {Read(kX, InnerRows), Read(kY, YRows), GradientOf(kDW, Factor)}},
    .flops = FlopsOfProduct,
    // The gradient of the logits, [rows, V], is by far the largest value, and a schedule that puts
    // W off would keep one for each micro-batch (docs/adr/0008).
    .weight_grad_waits = false,
    .spec = LossSpec,
    .forward = ForwardLoss,
    .backward = BackwardLoss};

constinit const OpSchema kLossCombineSchema = {
    .name = "LossCombine",
    .operands = {{Wide(Read(kX, SharesOfAll)),
                  TokensIn(Space::kTargets),
                  Wide(Write(kY, PerRow<1>)),
                  {kDB, Access::kReadWrite, OneNumber, Space::kLossSum, Stored::kF64}}},
    .spec = LossSpec};

}  // namespace trireme::graph
