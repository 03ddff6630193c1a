// Forward half of StageLowering: which placement each operator needs and gives.
#include "runtime/base/check.h"
#include "runtime/graph/stage_lowering.h"

namespace trireme::graph {

// Rows of the vocabulary are cut over the tensor axis, so each rank gives its share of the sum.
void StageLowering::ForwardEmbedding(const Node& node) {
  const layout::Interval vocabulary =
      layout::SplitEvenly(graph_.vocab_size, options_.tensor_size, options_.tensor_index);
  OpSpec spec = RowSpec(node, Phase::kForward);
  spec.rows = rows_;
  spec.row_begin = 0;
  spec.vocab_begin = vocabulary.begin;
  spec.vocab_rows = vocabulary.size();
  const View y{NewBuffer(node.name, rows_ * graph_.hidden_size), 0, Placement::kPartial};
  LoweredOp op = Op(spec, node.name);
  op.operand[kTokens] = {Space::kTokens, 0, 0};
  op.operand[kW] = ParameterRef(node.weight);
  op.operand[kY] = Ref(y);
  stage_.forward.push_back(op);
  value_[node.output] = Redistribute(stage_.forward, y, stream_placement(), node.name + ".reduce");
}

void StageLowering::ForwardRowWise(const Node& node) {
  const View x = Redistribute(stage_.forward, value_.at(node.input), stream_placement(),
                              node.name + ".reduce");
  const bool norm = node.op == OpKind::kLayerNorm || node.op == OpKind::kRmsNorm;
  LoweredOp op = Op(RowSpec(node, Phase::kForward), node.name);
  const View y = OutputView(node, /*gathered=*/norm);
  op.operand[kX] = Ref(x);
  op.operand[kY] = Ref(y);
  op.operand[kW] = ParameterRef(node.weight);
  op.operand[kB] = ParameterRef(node.bias);
  if (node.residual != kNone) op.operand[kResidual] = Ref(value_.at(node.residual));
  if (norm) {
    const int64_t width = node.op == OpKind::kLayerNorm ? 2 : 1;
    saved_[node.output] = NewStatistics(node.name + ".stats", local_rows_.size() * width);
    op.operand[kStats] = {Space::kBuffer, saved_[node.output], 0};
  }
  stage_.forward.push_back(op);
  value_[node.output] = y;
}

void StageLowering::ForwardLinear(const Node& node) {
  const bool column = node.linear_kind == LinearKind::kColumnParallel;
  View x = value_.at(node.input);
  if (column) {
    const auto gathered = gathered_.find(node.input);
    if (gathered != gathered_.end()) {
      x = gathered->second;
    } else {
      x = Redistribute(stage_.forward, x, Placement::kReplicate, node.name + ".gather");
      gathered_[node.input] = x;
    }
  } else {
    TRIREME_CHECK(options_.tensor_size == 1 || x.placement == Placement::kColumns);
  }
  const View y{NewBuffer(node.name, rows_ * LocalColumns(node.output)), 0,
               column ? Placement::kColumns : Placement::kPartial};
  int64_t column_begin = 0;
  for (const LinearPart& part : node.parts) {
    LoweredOp op = Op(LinearSpec(node, part, Phase::kForward), node.name);
    op.operand[kX] = Ref(x);
    op.operand[kY] = Ref(y, column_begin);
    op.operand[kW] = ParameterRef(part.weight);
    op.operand[kB] = ParameterRef(part.bias);
    op.flops = 2.0 * static_cast<double>(op.spec.rows * op.spec.cols * op.spec.inner);
    column_begin += op.spec.cols;
    stage_.forward.push_back(op);
  }
  value_[node.output] =
      column ? y : Redistribute(stage_.forward, y, stream_placement(), node.name + ".reduce");
}

void StageLowering::ForwardColumnWise(const Node& node) {
  const View x = value_.at(node.input);
  TRIREME_CHECK(options_.tensor_size == 1 || x.placement == Placement::kColumns);
  LoweredOp op = Op(ColumnSpec(node, Phase::kForward), node.name);
  if (node.op == OpKind::kRope) {
    op.operand[kY] = Ref(x);
    stage_.forward.push_back(op);
    value_[node.output] = x;
    return;
  }
  const View y{NewBuffer(node.name, rows_ * LocalColumns(node.output)), 0, Placement::kColumns};
  op.operand[kX] = Ref(x);
  op.operand[kY] = Ref(y);
  if (node.op == OpKind::kAttention) {
    saved_[node.output] = NewStatistics(node.name + ".lse", rows_ * op.spec.heads);
    op.operand[kStats] = {Space::kBuffer, saved_[node.output], 0};
    op.flops =
        2.0 * static_cast<double>(rows_ * options_.tokens * op.spec.heads * op.spec.head_dim);
  }
  stage_.forward.push_back(op);
  value_[node.output] = y;
}

void StageLowering::ForwardLoss(const Node& node) {
  const View x = Redistribute(stage_.forward, value_.at(node.input), Placement::kReplicate,
                              node.name + ".gather");
  gathered_[node.input] = x;
  LoweredOp op = Op(LossSpec(node, Phase::kForward), node.name);
  const View logits{NewBuffer(node.name + ".logits", rows_ * op.spec.cols), 0, Placement::kColumns};
  const int64_t share = rows_ * 3;
  const View stats{NewStatistics(node.name + ".stats", share * options_.tensor_size),
                   share * options_.tensor_index, Placement::kRows};
  op.operand[kX] = Ref(x);
  op.operand[kY] = Ref(logits);
  op.operand[kW] = ParameterRef(node.weight);
  op.operand[kStats] = Ref(stats);
  op.operand[kTokens] = {Space::kTargets, 0, 0};
  op.flops = 2.0 * static_cast<double>(op.spec.rows * op.spec.cols * op.spec.inner);
  stage_.forward.push_back(op);
  stage_.logits_buffer = logits.buffer;
  value_[node.output] = logits;
  if (options_.tensor_size > 1) {
    AddCollective(stage_.forward, OpKind::kAllGather, stats.buffer, node.name + ".stats");
    std::vector<int64_t>& offsets = stage_.forward.back().offsets;
    for (size_t index = 0; index < offsets.size(); ++index) {
      offsets[index] = static_cast<int64_t>(index) * share;
    }
  }
  OpSpec combine = LossSpec(node, Phase::kForward);
  combine.kind = OpKind::kLossCombine;
  LoweredOp last = Op(combine, node.name + ".combine");
  loss_lse_ = NewStatistics(node.name + ".lse", rows_);
  last.operand[kX] = {Space::kBuffer, stats.buffer, 0};
  last.operand[kY] = {Space::kBuffer, loss_lse_, 0};
  last.operand[kTokens] = {Space::kTargets, 0, 0};
  last.operand[kDB] = {Space::kLossSum, 0, 0};
  stage_.forward.push_back(last);
}

}  // namespace trireme::graph
