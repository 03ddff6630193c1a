// Embedding:
//   F: y[r,:] = w[tokens[r] - vocab_begin, :] if 0 <= tokens[r] - vocab_begin < vocab_rows, else 0
//   W: dw[tokens[r] - vocab_begin, :] += dy[r,:] for those rows (dw zeroed first unless accumulate)
// PositionEmbedding:
//   F: y[r,:] = x[r,:] + w[(row_begin + r) % tokens, :]       (no I: the gradient passes through)
//   W: dw[(row_begin + r) % tokens, :] += dy[r,:] (all of dw [weight_rows, cols] zeroed first
//      unless accumulate)
#include "runtime/graph/op_rules.h"

namespace trireme::graph {
namespace {

constexpr Shape Table(const OpSpec& spec) { return Dense(spec.vocab_rows, spec.cols); }

OpSpec EmbeddingSpec(const LoweringScope& scope, const Node& node) {
  const layout::Interval vocabulary = scope.ShareOf(scope.graph.vocab_size);
  OpSpec spec = RowSpec(scope, node);
  spec.rows = scope.rows;
  spec.row_begin = 0;
  spec.vocab_begin = vocabulary.begin;
  spec.vocab_rows = vocabulary.size();
  return spec;
}

// Rows of the vocabulary are cut over the tensor axis, so each rank gives its share of the sum.
void ForwardEmbedding(StageLowering& stage, const Node& node) {
  const View y = stage.New(node.name, stage.scope().graph.hidden_size, Placement::kPartial);
  stage.Add(node, Phase::kForward, {{kY, y}});
  stage.SetOutput(node, y);
}

void BackwardEmbedding(StageLowering& stage, const Node& node) {
  stage.Add(node, Phase::kWeightGrad, {{kDY, stage.OutputGradient(node, Placement::kReplicate)}});
}

constexpr Shape Positions(const OpSpec& spec) { return Dense(spec.weight_rows, spec.cols); }

OpSpec PositionSpec(const LoweringScope& scope, const Node& node) {
  OpSpec spec = RowSpec(scope, node);
  spec.weight_rows = scope.graph.parameters[node.weight].shape[0];
  return spec;
}

void BackwardPositions(StageLowering& stage, const Node& node) {
  const View dy = stage.OutputGradient(node, stage.scope().stream);
  stage.Add(node, Phase::kWeightGrad, {{kDY, dy}});
  stage.SetGradient(node.input, dy);
}

}  // namespace

constinit const OpSchema kEmbeddingSchema = {
    .name = "Embedding",
    .operands = {{TokensIn(Space::kTokens), Learned(kW, Table), Write(kY, YRows)},
                 {},
                 {TokensIn(Space::kTokens), Read(kDY, YRows), GradientOf(kDW, Table)}},
    .recompute = Recompute::kInBlock,
    .spec = EmbeddingSpec,
    .forward = ForwardEmbedding,
    .backward = BackwardEmbedding};

constinit const OpSchema kPositionEmbeddingSchema = {
    .name = "PositionEmbedding",
    .operands = {{Read(kX, XRows), Learned(kW, Positions), Write(kY, YRows)},
                 {},
                 {Read(kDY, YRows), GradientOf(kDW, Positions)}},
    .recompute = Recompute::kInBlock,
    .spec = PositionSpec,
    .forward = ForwardOnRows<false>,
    .backward = BackwardPositions};

}  // namespace trireme::graph
