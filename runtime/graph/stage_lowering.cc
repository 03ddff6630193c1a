#include "runtime/graph/stage_lowering.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/graph/recompute.h"

namespace trireme::graph {

namespace {

layout::Interval LocalRows(const LoweringOptions& options) {
  const int64_t rows = options.micro_batch * options.tokens;
  if (!options.sequence_parallel) return {0, rows};
  return layout::SplitEvenly(rows, options.tensor_size, options.tensor_index);
}

bool IsNorm(OpKind kind) { return kind == OpKind::kLayerNorm || kind == OpKind::kRmsNorm; }

}  // namespace

StageLowering::StageLowering(const ModelGraph& graph, int first_block, int end_block,
                             const LoweringOptions& options)
    : graph_(graph),
      first_block_(first_block),
      end_block_(end_block),
      options_(options),
      rows_(options.micro_batch * options.tokens),
      local_rows_(LocalRows(options)) {}

StageOps StageLowering::Run() {
  std::set<ParameterId> parameters;
  std::vector<const Node*> nodes;
  for (const Node& node : graph_.nodes) {
    if (node.block < first_block_) stage_input_ = node.output;
    if (node.block < first_block_ || node.block >= end_block_) continue;
    nodes.push_back(&node);
    for (ParameterId id : {node.weight, node.bias}) {
      if (id != kNone) parameters.insert(id);
    }
    for (const LinearPart& part : node.parts) {
      parameters.insert(part.weight);
      if (part.bias != kNone) parameters.insert(part.bias);
    }
  }
  stage_.parameters.assign(parameters.begin(), parameters.end());
  const int64_t boundary = local_rows_.size() * graph_.hidden_size;
  stage_.boundary_bytes = boundary * static_cast<int64_t>(tensor::SizeOf(options_.dtype));
  if (first_block_ > 0) {
    value_[stage_input_] = {NewBuffer("input", boundary, BufferPool::kInput), 0,
                            stream_placement()};
  }
  if (end_block_ < graph_.blocks) {
    stage_output_ = nodes.back()->output;
    gradient_[stage_output_] = {NewBuffer("gradient_in", boundary, BufferPool::kGradientIn), 0,
                                stream_placement()};
  }
  for (const Node* node : nodes) {
    Forward(*node);
    NameBlock(node->block);
  }
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    Backward(**node);
    NameBlock((*node)->block);
  }
  RecomputeForward(stage_, options_.recompute);
  AssignPools(stage_, options_.split_backward);
  return std::move(stage_);
}

// Of the operators that the last node has become.
void StageLowering::NameBlock(int32_t block) {
  for (OpList* list :
       {&stage_.forward, &stage_.backward, &stage_.input_grad, &stage_.weight_grad}) {
    for (auto op = list->rbegin(); op != list->rend() && op->block == kNone; ++op) {
      op->block = block;
    }
  }
}

void StageLowering::Forward(const Node& node) {
  switch (node.op) {
    case OpKind::kEmbedding:
      return ForwardEmbedding(node);
    case OpKind::kPositionEmbedding:
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
    case OpKind::kResidualAdd:
      return ForwardRowWise(node);
    case OpKind::kLinear:
      return ForwardLinear(node);
    case OpKind::kRope:
    case OpKind::kAttention:
    case OpKind::kGelu:
    case OpKind::kSwiGlu:
      return ForwardColumnWise(node);
    case OpKind::kLmHeadLoss:
      return ForwardLoss(node);
    default:
      TRIREME_CHECK(false);
  }
}

void StageLowering::Backward(const Node& node) {
  switch (node.op) {
    case OpKind::kEmbedding:
      return BackwardEmbedding(node);
    case OpKind::kPositionEmbedding:
      return BackwardPositionEmbedding(node);
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
      return BackwardNorm(node);
    case OpKind::kResidualAdd:
      return BackwardResidualAdd(node);
    case OpKind::kLinear:
      return BackwardLinear(node);
    case OpKind::kRope:
    case OpKind::kAttention:
    case OpKind::kGelu:
    case OpKind::kSwiGlu:
      return BackwardColumnWise(node);
    case OpKind::kLmHeadLoss:
      return BackwardLoss(node);
    default:
      TRIREME_CHECK(false);
  }
}

// Placements -------------------------------------------------------------------------------------

Placement StageLowering::stream_placement() const {
  return options_.sequence_parallel && options_.tensor_size > 1 ? Placement::kRows
                                                                : Placement::kReplicate;
}

StageLowering::View StageLowering::Redistribute(OpList& list, const View& view, Placement needed,
                                                const std::string& name) {
  View result = view;
  result.placement = needed;
  if (view.placement == needed || options_.tensor_size == 1) return result;
  if (view.placement == Placement::kPartial && needed == Placement::kReplicate) {
    AddCollective(list, OpKind::kAllReduce, view.buffer, name);
  } else if (view.placement == Placement::kPartial && needed == Placement::kRows) {
    AddCollective(list, OpKind::kReduceScatter, view.buffer, name);
    result.offset = local_rows_.begin * graph_.hidden_size;
    result.roomy = true;
  } else if (view.placement == Placement::kRows && needed == Placement::kReplicate) {
    const View roomy = WithRoomForAllRows(list, view, name);
    AddCollective(list, OpKind::kAllGather, roomy.buffer, name);
    result = {roomy.buffer, 0, needed, /*roomy=*/false};
  } else {
    TRIREME_CHECK(false);  // a family asks for a change of placement that no operator rule gives
  }
  return result;
}

void StageLowering::AddCollective(OpList& list, OpKind kind, int32_t buffer,
                                  const std::string& name) {
  LoweredOp op;
  op.spec.kind = kind;
  op.spec.dtype = stage_.buffers[buffer].dtype;
  op.spec.rows = rows_;
  op.spec.cols = graph_.hidden_size;
  op.spec.tensor_ranks = options_.tensor_size;
  op.name = name;
  op.operand[kY] = {Space::kBuffer, buffer, 0};
  for (int64_t index = 0; index <= options_.tensor_size; ++index) {
    const int64_t row = index == options_.tensor_size
                            ? rows_
                            : layout::SplitEvenly(rows_, options_.tensor_size, index).begin;
    op.offsets.push_back(row * graph_.hidden_size);
  }
  list.push_back(std::move(op));
}

StageLowering::View StageLowering::WithRoomForAllRows(OpList& list, const View& view,
                                                      const std::string& name) {
  const int64_t all = rows_ * graph_.hidden_size;
  const int64_t own = local_rows_.begin * graph_.hidden_size;
  if (view.roomy) return view;
  const View roomy{NewBuffer(name + ".gathered", all), own, view.placement, /*roomy=*/true};
  // ResidualAdd's input-grad without dropout is a copy.
  OpSpec spec;
  spec.kind = OpKind::kResidualAdd;
  spec.phase = Phase::kInputGrad;
  spec.dtype = options_.dtype;
  spec.rows = local_rows_.size();
  spec.cols = spec.x_ld = spec.y_ld = graph_.hidden_size;
  spec.tokens = options_.tokens;
  spec.row_begin = local_rows_.begin;
  LoweredOp copy = Op(spec, name + ".copy");
  copy.operand[kDY] = Ref(view);
  copy.operand[kDX] = Ref(roomy);
  list.push_back(std::move(copy));
  return roomy;
}

// Pieces -----------------------------------------------------------------------------------------

int32_t StageLowering::NewBuffer(const std::string& name, int64_t elements, BufferPool pool) {
  const auto width = static_cast<int64_t>(tensor::SizeOf(options_.dtype));
  stage_.buffers.push_back(
      {.name = name, .dtype = options_.dtype, .bytes = elements * width, .pool = pool});
  return static_cast<int32_t>(stage_.buffers.size()) - 1;
}

int32_t StageLowering::NewStatistics(const std::string& name, int64_t elements) {
  const tensor::DType dtype = tensor::AccumulatorOf(options_.dtype);
  const auto width = static_cast<int64_t>(tensor::SizeOf(dtype));
  stage_.buffers.push_back({.name = name, .dtype = dtype, .bytes = elements * width});
  return static_cast<int32_t>(stage_.buffers.size()) - 1;
}

StageLowering::View StageLowering::NewStreamView(const std::string& name, bool gathered) {
  const int64_t width = graph_.hidden_size;
  if (gathered && stream_placement() == Placement::kRows) {
    return {NewBuffer(name, rows_ * width), local_rows_.begin * width, Placement::kRows,
            /*roomy=*/true};
  }
  return {NewBuffer(name, local_rows_.size() * width), 0, stream_placement()};
}

StageLowering::View StageLowering::OutputView(const Node& node, bool gathered) {
  if (node.output == stage_output_) {
    return {NewBuffer("output", local_rows_.size() * graph_.hidden_size, BufferPool::kOutput), 0,
            stream_placement()};
  }
  return NewStreamView(node.name, gathered);
}

int64_t StageLowering::LocalColumns(ValueId value) const {
  return graph_.values[value].columns.Local(options_.tensor_size, options_.tensor_index);
}

OperandRef StageLowering::Ref(const View& view, int64_t extra) const {
  const auto width = static_cast<int64_t>(tensor::SizeOf(stage_.buffers[view.buffer].dtype));
  return {Space::kBuffer, view.buffer, (view.offset + extra) * width};
}

OperandRef StageLowering::ParameterRef(ParameterId id) {
  return id == kNone ? OperandRef{} : OperandRef{Space::kParameter, id, 0};
}

OperandRef StageLowering::GradientRef(ParameterId id) {
  return id == kNone ? OperandRef{} : OperandRef{Space::kGradient, id, 0};
}

LoweredOp StageLowering::Op(const OpSpec& spec, const std::string& name) const {
  LoweredOp op;
  op.spec = spec;
  op.name = name;
  return op;
}

void StageLowering::AddWeightGrad(LoweredOp op, OpList& list) {
  const OperandRef& target =
      op.operand[kDW].space == Space::kNone ? op.operand[kDB] : op.operand[kDW];
  op.first_writer = written_.insert(target.id).second;
  list.push_back(std::move(op));
}

StageLowering::View StageLowering::Gradient(ValueId value) const {
  const auto found = gradient_.find(value);
  TRIREME_CHECK(found != gradient_.end());  // a value nobody reads
  return found->second;
}

OpSpec StageLowering::RowSpec(const Node& node, Phase phase) const {
  OpSpec spec;
  spec.kind = node.op;
  spec.phase = phase;
  spec.dtype = options_.dtype;
  spec.rows = local_rows_.size();
  spec.cols = spec.x_ld = spec.y_ld = graph_.hidden_size;
  spec.row_begin = local_rows_.begin;
  spec.tokens = options_.tokens;
  if (IsNorm(node.op)) spec.epsilon = graph_.epsilon;
  if (node.op == OpKind::kPositionEmbedding) {
    spec.weight_rows = graph_.parameters[node.weight].shape[0];
  }
  if (node.dropout_p > 0) {
    spec.dropout_p = node.dropout_p;
    spec.site = base::SiteOf(node.name);
  }
  return spec;
}

OpSpec StageLowering::ColumnSpec(const Node& node, Phase phase) const {
  const layout::Interval groups =
      layout::SplitEvenly(graph_.kv_heads, options_.tensor_size, options_.tensor_index);
  const int64_t group = graph_.heads / graph_.kv_heads;
  OpSpec spec;
  spec.kind = node.op;
  spec.phase = phase;
  spec.dtype = options_.dtype;
  spec.rows = rows_;
  spec.cols = spec.y_ld = LocalColumns(node.output);
  spec.x_ld = LocalColumns(node.input);
  spec.tokens = options_.tokens;
  if (node.op == OpKind::kAttention || node.op == OpKind::kRope) {
    spec.heads = groups.size() * group;
    spec.kv_heads = groups.size();
    spec.head_dim = graph_.head_dim;
    spec.head_begin = groups.begin * group;
    spec.global_heads = graph_.heads;
    spec.rope_theta = graph_.rope_theta;
  }
  if (node.dropout_p > 0) {
    spec.dropout_p = node.dropout_p;
    spec.site = base::SiteOf(node.name);
  }
  return spec;
}

OpSpec StageLowering::LinearSpec(const Node& node, const LinearPart& part, Phase phase) const {
  OpSpec spec;
  spec.kind = OpKind::kLinear;
  spec.phase = phase;
  spec.dtype = options_.dtype;
  spec.rows = rows_;
  spec.cols = part.columns.Local(options_.tensor_size, options_.tensor_index);
  spec.inner = spec.x_ld = LocalColumns(node.input);
  spec.y_ld = LocalColumns(node.output);
  spec.weight_layout = node.weight_layout;
  return spec;
}

OpSpec StageLowering::LossSpec(const Node& node, Phase phase) const {
  const layout::Interval vocabulary =
      layout::SplitEvenly(graph_.vocab_size, options_.tensor_size, options_.tensor_index);
  OpSpec spec;
  spec.kind = OpKind::kLmHeadLoss;
  spec.phase = phase;
  spec.dtype = options_.dtype;
  spec.rows = rows_;
  spec.inner = spec.x_ld = graph_.hidden_size;
  spec.cols = spec.y_ld = spec.vocab_rows = vocabulary.size();
  spec.vocab_begin = vocabulary.begin;
  spec.weight_layout = node.weight_layout;
  spec.tensor_ranks = options_.tensor_size;
  return spec;
}

}  // namespace trireme::graph
