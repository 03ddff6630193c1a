// LmHeadLoss:
//   F: y = logits [rows, cols] = x * W (cols = vocab_rows); stats[r] = (max, sum exp(logit - max),
//      logit of the target, 0 where it is not local) over the local vocabulary
//   I: logits in y become (softmax(y) - onehot) * loss_scale (0 for rows not counted), softmax by
//      kBase = lse[rows]; dx = that * W^T
//   W: dw = x^T * y (y is dlogits by now)
// LossCombine:
//   F: x = stats of all tensor ranks [tensor_ranks][rows][3]; y = lse[rows];
//      kDB (f64[1]) += sum over counted rows of (lse - target logit)       (not scaled)
#include <algorithm>
#include <string>
#include <vector>

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

// Calls visit(rows) for tiles of the micro-batch's rows, the same on all tensor ranks, whose shares
// of the vocabulary differ.
template <typename Visit>
void ForTiles(const LoweringScope& scope, const Visit& visit) {
  const int64_t ranks = scope.options.tensor_size;
  const int64_t widest = (scope.graph.vocab_size + ranks - 1) / ranks;
  const int64_t row_bytes = widest * static_cast<int64_t>(tensor::SizeOf(scope.options.dtype));
  const int64_t given = scope.options.loss_tile_rows;
  const int64_t tile = given > 0 ? given : LossTileRows(scope.rows, row_bytes);
  for (int64_t begin = 0; begin < scope.rows; begin += tile) {
    visit(layout::Interval{begin, std::min(scope.rows, begin + tile)});
  }
}

// From the first of `rows`, of a view of all rows.
View At(View view, const layout::Interval& rows, int64_t width) {
  view.offset += rows.begin * width;
  return view;
}

// What one tile after another is made in.
struct TileBuffers {
  View logits, stats, lse;
};

TileBuffers NewTileBuffers(StageLowering& stage, const Node& node, const std::string& suffix) {
  const LoweringScope& scope = stage.scope();
  int64_t rows = 0;
  ForTiles(scope, [&](const layout::Interval& tile) { rows = std::max(rows, tile.size()); });
  const std::string name = node.name + suffix;
  return {.logits = stage.NewRows(name + ".logits", rows, scope.ColumnsOf(node.output),
                                  Placement::kColumns),
          .stats = stage.NewRows(name + ".stats", scope.options.tensor_size * rows, kShare,
                                 Placement::kReplicate, Stored::kAccumulator),
          .lse = stage.New(name + ".lse", 1, Placement::kReplicate, Stored::kAccumulator)};
}

// Logits of a tile, and their loss.
void AddLoss(StageLowering& stage, std::vector<LoweredOp>& list, const Node& node,
             const layout::Interval& rows, const TileBuffers& tile) {
  const LoweringScope& scope = stage.scope();
  const int64_t ranks = scope.options.tensor_size;
  const View x = At(stage.Input(node, Placement::kReplicate), rows, scope.graph.hidden_size);
  View own = tile.stats;
  own.offset = scope.options.tensor_index * rows.size() * kShare;
  stage.AddRows(list, node, Phase::kForward, rows, {{kX, x}, {kY, tile.logits}, {kStats, own}});
  if (ranks > 1) {
    stage.AddCollective(list, OpKind::kAllGather, tile.stats.buffer, node.name + ".stats",
                        {ranks * rows.size(), kShare});
  }
  Node combine = node;
  combine.op = OpKind::kLossCombine;
  combine.name += ".combine";
  stage.AddRows(list, combine, Phase::kForward, rows,
                {{kX, tile.stats}, {kY, At(tile.lse, rows, 1)}});
}

// The logits of one row, which generation draws the next token from.
void AddNextToken(StageLowering& stage, const Node& node) {
  const LoweringScope& scope = stage.scope();
  Node row = node;
  row.op = OpKind::kLinear;
  row.name += ".next_token";
  row.parts = {{.weight = node.weight, .columns = scope.graph.values[node.output].columns}};
  const View x = stage.Input(node, Placement::kReplicate);
  const View logits = stage.NewRows(row.name, 1, scope.ColumnsOf(node.output), Placement::kColumns);
  stage.AddRows(stage.ops().forward, row, Phase::kForward, {0, 1}, {{kX, x}, {kY, logits}})
      .at_position = true;
  stage.ops().logits_buffer = logits.buffer;
}

void NoteForwardEnd(StageLowering& stage, ForwardUse use) {
  stage.ops().forward_end[static_cast<size_t>(use)] =
      static_cast<uint32_t>(stage.ops().forward.size());
}

void ForwardLoss(StageLowering& stage, const Node& node) {
  stage.Input(node, Placement::kReplicate);  // gathered in any forward, which backward counts on
  NoteForwardEnd(stage, ForwardUse::kStep);
  AddNextToken(stage, node);
  NoteForwardEnd(stage, ForwardUse::kGenerate);
  const TileBuffers tile = NewTileBuffers(stage, node, "");
  ForTiles(stage.scope(), [&](const layout::Interval& rows) {
    AddLoss(stage, stage.ops().forward, node, rows, tile);
  });
  NoteForwardEnd(stage, ForwardUse::kEvaluate);
}

// All of a tile before the next: its logits become their gradient, which both products read.
void BackwardLoss(StageLowering& stage, const Node& node) {
  const int64_t width = stage.scope().graph.hidden_size;
  std::vector<LoweredOp>& list = stage.InputGradList();
  const TileBuffers tile = NewTileBuffers(stage, node, ".step");
  const View x = stage.Input(node, Placement::kReplicate);
  const View dx = stage.New(node.name + ".dx", width, Placement::kPartial);
  ForTiles(stage.scope(), [&](const layout::Interval& rows) {
    AddLoss(stage, list, node, rows, tile);
    stage.AddRows(list, node, Phase::kInputGrad, rows,
                  {{kY, tile.logits}, {kBase, At(tile.lse, rows, 1)}, {kDX, At(dx, rows, width)}});
    stage.AddRows(list, node, Phase::kWeightGrad, rows,
                  {{kX, At(x, rows, width)}, {kY, tile.logits}});
  });
  stage.ops().row_losses_buffer = tile.lse.buffer;
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
    // The logits of a micro-batch, [rows, V], are by far the largest value: they exist in tiles of
    // rows, one at a time, whose forward, I and W follow one another (docs/adr/0013).
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
