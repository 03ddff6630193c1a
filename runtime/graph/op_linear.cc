// Linear, x [rows, inner], W as weight_layout:
//   F: y = x * W + b (b may be null) (+ residual [rows, cols] if fused_residual)
//   I: dx = base + dy * W^T
//   W: dw = x^T dy in weight_layout, db = column sums of dy (db may be null)
#include "runtime/graph/op_rules.h"

namespace trireme::graph {
namespace {

// Each part of a node is lowered as a node of its own, on its columns of the common output.
std::vector<Node> PartsOf(const Node& node) {
  std::vector<Node> parts(node.parts.size(), node);
  for (size_t index = 0; index < parts.size(); ++index) {
    parts[index].parts = {node.parts[index]};
    parts[index].weight = node.parts[index].weight;
    parts[index].bias = node.parts[index].bias;
  }
  return parts;
}

OpSpec LinearSpec(const LoweringScope& scope, const Node& part) {
  OpSpec spec = SpecOf(scope, part);
  spec.rows = scope.rows;
  spec.cols = scope.WidthOf(part.parts[0].columns);
  spec.inner = spec.x_ld = scope.ColumnsOf(part.input);
  spec.y_ld = scope.ColumnsOf(part.output);
  spec.weight_layout = part.weight_layout;
  return spec;
}

// Column-parallel: every rank reads all of x and gives columns of y. Row-parallel: each has columns
// of x and gives its summand of y.
void ForwardLinear(StageLowering& stage, const Node& node) {
  const LoweringScope& scope = stage.scope();
  const bool column = node.linear_kind == LinearKind::kColumnParallel;
  const View x = stage.Input(node, column ? Placement::kReplicate : Placement::kColumns);
  const View y = stage.New(node.name, scope.ColumnsOf(node.output),
                           column ? Placement::kColumns : Placement::kPartial);
  View part_y = y;
  for (const Node& part : PartsOf(node)) {
    stage.Add(part, Phase::kForward, {{kX, x}, {kY, part_y}});
    part_y.offset += scope.WidthOf(part.parts[0].columns);
  }
  stage.SetOutput(node, y);
}

void BackwardLinear(StageLowering& stage, const Node& node) {
  const LoweringScope& scope = stage.scope();
  const bool column = node.linear_kind == LinearKind::kColumnParallel;
  View dy = stage.OutputGradient(node, column ? Placement::kColumns : Placement::kReplicate);
  const View x = stage.Input(node, column ? Placement::kReplicate : Placement::kColumns);
  const View dx = stage.New(node.name + ".dx", scope.ColumnsOf(node.input),
                            column ? Placement::kPartial : Placement::kColumns);
  View base;
  for (const Node& part : PartsOf(node)) {
    stage.Add(part, Phase::kInputGrad, {{kDY, dy}, {kBase, base}, {kDX, dx}});
    stage.Add(part, Phase::kWeightGrad, {{kX, x}, {kDY, dy}});
    dy.offset += scope.WidthOf(part.parts[0].columns);
    base = dx;
  }
  stage.SetGradient(node.input, dx);
}

}  // namespace

constinit const OpSchema kLinearSchema = {
    .name = "Linear",
    .operands = {{Read(kX, InnerRows), Learned(kW, Factor), Optional(Learned(kB, OneRow)),
                  Optional(Read(kResidual, YRows)), Write(kY, YRows)},
                 {Read(kDY, YRows), Learned(kW, Factor), BaseOfDx(InnerRows),
                  Write(kDX, InnerRows)},
                 {Read(kX, InnerRows), Read(kDY, YRows), GradientOf(kDW, Factor),
                  Optional(GradientOf(kDB, OneRow))}},
    .flops = FlopsOfProduct,
    .recompute = Recompute::kInBlock,
    .spec = LinearSpec,
    .forward = ForwardLinear,
    .backward = BackwardLinear};

}  // namespace trireme::graph
