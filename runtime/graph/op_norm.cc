// LayerNorm, RmsNorm:
//   F: LayerNorm stats[r] = (mean, 1/sqrt(var + epsilon)), y = (x - mean) * rstd * w + b (b may be
//      null); RmsNorm stats[r] = 1/sqrt(mean(x^2) + epsilon), y = x * rstd * w + b
//   I: dx = base + gradient, from dy, x, stats, w; y again, with b too, where asked for
//   W: dw, db (db may be null) from dy, x, stats
#include "runtime/graph/op_rules.h"

namespace trireme::graph {
namespace {

OpSpec NormSpec(const LoweringScope& scope, const Node& node) {
  OpSpec spec = RowSpec(scope, node);
  spec.epsilon = scope.graph.epsilon;
  return spec;
}

// The gradient of the residual stream is added to in place, except where a separate weight-grad
// still reads the summand or the result leaves the stage.
void BackwardNorm(StageLowering& stage, const Node& node) {
  const LoweringScope& scope = stage.scope();
  const View dy = stage.OutputGradient(node, scope.stream);
  const View base = stage.Gradient(node.input);
  View dx = base;
  if (node.input == scope.stage_input) {
    dx = stage.NewOnStream("gradient_out", BufferPool::kGradientOut);
  } else if (base.buffer == kNone || scope.options.split_backward) {
    dx = stage.NewOnStream(node.name + ".dx");
  }
  stage.Add(node, Phase::kInputGrad, {{kDY, dy}, {kBase, base}, {kDX, dx}});
  stage.Add(node, Phase::kWeightGrad, {{kDY, dy}});
  stage.SetGradient(node.input, dx);
}

constexpr OpSchema NormSchema(std::string_view name, ShapeRule stats) {
  const OperandSchema read_stats = Wide(Read(kStats, stats));
  return {.name = name,
          .operands = {{Read(kX, XRows), Learned(kW, OneRow), Optional(Learned(kB, OneRow)),
                        Write(kY, YRows), Wide(Write(kStats, stats))},
                       {Read(kDY, YRows), Read(kX, XRows), read_stats, Learned(kW, OneRow),
                        Optional(Learned(kB, OneRow)), BaseOfDx(XRows), Write(kDX, XRows),
                        Restored(YRows)},
                       {Read(kDY, YRows), Read(kX, XRows), read_stats, GradientOf(kDW, OneRow),
                        Optional(GradientOf(kDB, OneRow))}},
          .recompute = Recompute::kSelective,
          .spec = NormSpec,
          .forward = ForwardOnRows<true>,
          .backward = BackwardNorm};
}

}  // namespace

constinit const OpSchema kLayerNormSchema = NormSchema("LayerNorm", PerRow<2>);
constinit const OpSchema kRmsNormSchema = NormSchema("RmsNorm", PerRow<1>);

}  // namespace trireme::graph
