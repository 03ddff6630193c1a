// Backward half of StageLowering. The gradient of a value lies as its dual: what was gathered is
// reduce-scattered, what was summed is replicated. Input gradients of the residual stream are added
// in place, except where a separate weight-grad still reads the summand (split_backward) or the
// result leaves the stage.
#include "runtime/base/check.h"
#include "runtime/graph/stage_lowering.h"

namespace trireme::graph {

void StageLowering::BackwardLoss(const Node& node) {
  const View x = gathered_.at(node.input);
  const View logits = value_.at(node.output);
  const View dx{NewBuffer(node.name + ".dx", rows_ * graph_.hidden_size), 0, Placement::kPartial};
  LoweredOp op = Op(LossSpec(node, Phase::kInputGrad), node.name);
  op.operand[kY] = Ref(logits);
  op.operand[kW] = ParameterRef(node.weight);
  op.operand[kBase] = {Space::kBuffer, loss_lse_, 0};
  op.operand[kTokens] = {Space::kTargets, 0, 0};
  op.operand[kDX] = Ref(dx);
  op.flops = 2.0 * static_cast<double>(op.spec.rows * op.spec.cols * op.spec.inner);
  InputGradList().push_back(op);
  LoweredOp weight = Op(LossSpec(node, Phase::kWeightGrad), node.name);
  weight.operand[kX] = Ref(x);
  weight.operand[kY] = Ref(logits);
  weight.operand[kDW] = GradientRef(node.weight);
  weight.flops = op.flops;
  // Never put off: the gradient of the logits, [rows, V], is by far the largest value, and a
  // schedule that puts W off would keep one for each micro-batch (docs/adr/0008).
  AddWeightGrad(std::move(weight), InputGradList());
  gradient_[node.input] = dx;
}

void StageLowering::BackwardLinear(const Node& node) {
  const bool column = node.linear_kind == LinearKind::kColumnParallel;
  View dy = Gradient(node.output);
  if (!column) {
    dy = Redistribute(InputGradList(), dy, Placement::kReplicate, node.name + ".gather");
  }
  const View x = column ? gathered_.at(node.input) : value_.at(node.input);
  const View dx{NewBuffer(node.name + ".dx", rows_ * LocalColumns(node.input)), 0,
                column ? Placement::kPartial : Placement::kColumns};
  int64_t column_begin = 0;
  for (const LinearPart& part : node.parts) {
    LoweredOp op = Op(LinearSpec(node, part, Phase::kInputGrad), node.name);
    op.operand[kDY] = Ref(dy, column_begin);
    op.operand[kW] = ParameterRef(part.weight);
    op.operand[kDX] = Ref(dx);
    if (column_begin > 0) op.operand[kBase] = Ref(dx);
    op.flops = 2.0 * static_cast<double>(op.spec.rows * op.spec.cols * op.spec.inner);
    InputGradList().push_back(op);
    LoweredOp weight = Op(LinearSpec(node, part, Phase::kWeightGrad), node.name);
    weight.operand[kX] = Ref(x);
    weight.operand[kDY] = Ref(dy, column_begin);
    weight.operand[kDW] = GradientRef(part.weight);
    weight.operand[kDB] = GradientRef(part.bias);
    weight.flops = op.flops;
    column_begin += op.spec.cols;
    AddWeightGrad(std::move(weight));
  }
  gradient_[node.input] = dx;
}

void StageLowering::BackwardColumnWise(const Node& node) {
  const View dy = Gradient(node.output);
  LoweredOp op = Op(ColumnSpec(node, Phase::kInputGrad), node.name);
  op.operand[kDY] = Ref(dy);
  if (node.op == OpKind::kRope) {
    InputGradList().push_back(op);
    gradient_[node.input] = dy;
    return;
  }
  const View dx{NewBuffer(node.name + ".dx", rows_ * LocalColumns(node.input)), 0,
                Placement::kColumns};
  op.operand[kX] = Ref(value_.at(node.input));
  op.operand[kDX] = Ref(dx);
  if (node.op == OpKind::kAttention) {
    op.operand[kY] = Ref(value_.at(node.output));
    op.operand[kStats] = {Space::kBuffer, saved_.at(node.output), 0};
    op.flops =
        5.0 * static_cast<double>(rows_ * options_.tokens * op.spec.heads * op.spec.head_dim);
  }
  InputGradList().push_back(op);
  gradient_[node.input] = dx;
}

void StageLowering::BackwardNorm(const Node& node) {
  const View dy = Redistribute(InputGradList(), Gradient(node.output), stream_placement(),
                               node.name + ".reduce");
  const View x = value_.at(node.input);
  const auto base = gradient_.find(node.input);
  View dx;
  if (node.input == stage_input_) {
    dx = {NewBuffer("gradient_out", local_rows_.size() * graph_.hidden_size,
                    BufferPool::kGradientOut),
          0, stream_placement()};
  } else if (base != gradient_.end() && !options_.split_backward) {
    dx = base->second;
  } else {
    dx = NewStreamView(node.name + ".dx", /*gathered=*/false);
  }
  LoweredOp op = Op(RowSpec(node, Phase::kInputGrad), node.name);
  op.operand[kDY] = Ref(dy);
  op.operand[kX] = Ref(x);
  op.operand[kStats] = {Space::kBuffer, saved_.at(node.output), 0};
  op.operand[kW] = ParameterRef(node.weight);
  if (base != gradient_.end()) op.operand[kBase] = Ref(base->second);
  op.operand[kDX] = Ref(dx);
  InputGradList().push_back(op);
  LoweredOp weight = Op(RowSpec(node, Phase::kWeightGrad), node.name);
  weight.operand[kDY] = Ref(dy);
  weight.operand[kX] = Ref(x);
  weight.operand[kStats] = op.operand[kStats];
  weight.operand[kDW] = GradientRef(node.weight);
  weight.operand[kDB] = GradientRef(node.bias);
  AddWeightGrad(std::move(weight));
  if (stream_placement() == Placement::kRows) {
    stage_.partial_over_tensor.insert(node.weight);
    if (node.bias != kNone) stage_.partial_over_tensor.insert(node.bias);
  }
  gradient_[node.input] = dx;
}

void StageLowering::BackwardResidualAdd(const Node& node) {
  const View dy = Gradient(node.output);
  if (node.bias != kNone) {
    LoweredOp weight = Op(RowSpec(node, Phase::kWeightGrad), node.name);
    weight.operand[kDY] = Ref(dy);
    weight.operand[kDB] = GradientRef(node.bias);
    AddWeightGrad(std::move(weight));
    if (stream_placement() == Placement::kRows) stage_.partial_over_tensor.insert(node.bias);
  }
  if (node.residual != kNone) gradient_[node.residual] = dy;
  if (node.dropout_p == 0) {
    gradient_[node.input] = dy;
    return;
  }
  const View dx = NewStreamView(node.name + ".dx", /*gathered=*/true);
  LoweredOp op = Op(RowSpec(node, Phase::kInputGrad), node.name);
  op.operand[kDY] = Ref(dy);
  op.operand[kDX] = Ref(dx);
  InputGradList().push_back(op);
  gradient_[node.input] = dx;
}

void StageLowering::BackwardPositionEmbedding(const Node& node) {
  const View dy = Gradient(node.output);
  LoweredOp weight = Op(RowSpec(node, Phase::kWeightGrad), node.name);
  weight.operand[kDY] = Ref(dy);
  weight.operand[kDW] = GradientRef(node.weight);
  AddWeightGrad(std::move(weight));
  if (stream_placement() == Placement::kRows) stage_.partial_over_tensor.insert(node.weight);
  gradient_[node.input] = dy;
}

void StageLowering::BackwardEmbedding(const Node& node) {
  const View dy = Redistribute(InputGradList(), Gradient(node.output), Placement::kReplicate,
                               node.name + ".gather");
  const layout::Interval vocabulary =
      layout::SplitEvenly(graph_.vocab_size, options_.tensor_size, options_.tensor_index);
  OpSpec spec = RowSpec(node, Phase::kWeightGrad);
  spec.rows = rows_;
  spec.row_begin = 0;
  spec.vocab_begin = vocabulary.begin;
  spec.vocab_rows = vocabulary.size();
  LoweredOp weight = Op(spec, node.name);
  weight.operand[kTokens] = {Space::kTokens, 0, 0};
  weight.operand[kDY] = Ref(dy);
  weight.operand[kDW] = GradientRef(node.weight);
  AddWeightGrad(std::move(weight));
}

}  // namespace trireme::graph
