#include "runtime/graph/stage_lowering.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/graph/op_rules.h"
#include "runtime/graph/recompute.h"
#include "runtime/graph/restore.h"

namespace trireme::graph {

namespace {

std::vector<const Node*> NodesOf(const ModelGraph& graph, int first_block, int end_block) {
  std::vector<const Node*> nodes;
  for (const Node& node : graph.nodes) {
    if (node.block >= first_block && node.block < end_block) nodes.push_back(&node);
  }
  return nodes;
}

LoweringScope ScopeOf(const ModelGraph& graph, const std::vector<const Node*>& nodes,
                      const LoweringOptions& options) {
  const int64_t rows = options.micro_batch * options.tokens;
  const bool cut = options.sequence_parallel && options.tensor_size > 1;
  return {.graph = graph,
          .options = options,
          .rows = rows,
          .own_rows = layout::SplitEvenly(rows, cut ? options.tensor_size : 1,
                                          cut ? options.tensor_index : 0),
          .stream = cut ? Placement::kRows : Placement::kReplicate,
          .stage_input = nodes.front()->input,
          .stage_output = nodes.back()->block + 1 == graph.blocks ? kNone : nodes.back()->output};
}

constexpr OpSchema Collective(std::string_view name) {
  return {.name = name, .operands = {{InPlace(kY, nullptr)}}};
}

}  // namespace

// In place on all of kY, of which each rank has the share that LoweredOp::offsets says; the engine
// executes them.
constinit const OpSchema kAllReduceSchema = Collective("AllReduce");
constinit const OpSchema kAllGatherSchema = Collective("AllGather");
constinit const OpSchema kReduceScatterSchema = Collective("ReduceScatter");

StageLowering::StageLowering(const ModelGraph& graph, int first_block, int end_block,
                             const LoweringOptions& options)
    : nodes_(NodesOf(graph, first_block, end_block)), scope_(ScopeOf(graph, nodes_, options)) {}

StageOps StageLowering::Run() {
  const int64_t boundary = scope_.own_rows.size() * scope_.graph.hidden_size;
  stage_.boundary_bytes = boundary * static_cast<int64_t>(tensor::SizeOf(scope_.options.dtype));
  if (scope_.stage_input != kNone) {
    value_[scope_.stage_input] = NewOnStream("input", BufferPool::kInput);
  }
  if (scope_.stage_output != kNone) {
    gradient_[scope_.stage_output] = NewOnStream("gradient_in", BufferPool::kGradientIn);
  }
  for (const Node* node : nodes_) {
    SchemaOf(node->op).forward(*this, *node);
    NameBlock(node->block);
  }
  // The head says so itself.
  if (scope_.stage_output != kNone) {
    stage_.forward_end.fill(static_cast<uint32_t>(stage_.forward.size()));
  }
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    SchemaOf((*node)->op).backward(*this, **node);
    NameBlock((*node)->block);
  }
  RestoreOutputs(stage_);
  RecomputeForward(stage_, scope_.options.recompute);
  stage_.parameters.assign(parameters_.begin(), parameters_.end());
  AssignPools(stage_, scope_.options.split_backward);
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

View StageLowering::Input(const Node& node, Placement needed) {
  const auto gathered = gathered_.find(node.input);
  if (needed == Placement::kReplicate && gathered != gathered_.end()) return gathered->second;
  const View view = Redistribute(stage_.forward, value_.at(node.input), needed, node.name);
  if (needed == Placement::kReplicate) gathered_[node.input] = view;
  return view;
}

void StageLowering::SetOutput(const Node& node, const View& view) {
  const bool sum = view.placement == Placement::kPartial;
  value_[node.output] = sum ? Redistribute(stage_.forward, view, scope_.stream, node.name) : view;
}

View StageLowering::OutputGradient(const Node& node, Placement needed) {
  const View dy = Gradient(node.output);
  TRIREME_CHECK(dy.buffer != kNone);  // a value nobody reads
  return Redistribute(InputGradList(), dy, needed, node.name);
}

View StageLowering::Redistribute(OpList& list, const View& view, Placement needed,
                                 const std::string& name) {
  const std::pair<int64_t, int64_t> all{scope_.rows, scope_.graph.hidden_size};
  View result = view;
  result.placement = needed;
  if (view.placement == needed || scope_.options.tensor_size == 1) return result;
  if (view.placement == Placement::kPartial && needed == Placement::kReplicate) {
    AddCollective(list, OpKind::kAllReduce, view.buffer, name + ".reduce", all);
  } else if (view.placement == Placement::kPartial && needed == Placement::kRows) {
    AddCollective(list, OpKind::kReduceScatter, view.buffer, name + ".reduce", all);
    result.offset = scope_.own_rows.begin * scope_.graph.hidden_size;
    result.roomy = true;
  } else if (view.placement == Placement::kRows && needed == Placement::kReplicate) {
    if (!view.roomy) {
      // ResidualAdd's input-grad without dropout is a copy.
      const Node copy{.op = OpKind::kResidualAdd, .name = name + ".copy"};
      result = NewOnStream(name + ".gathered", BufferPool::kTemporary, /*gathered=*/true);
      list.push_back(Lower(copy, Phase::kInputGrad, {{kDY, view}, {kDX, result}}));
    }
    AddCollective(list, OpKind::kAllGather, result.buffer, name + ".gather", all);
    result = {.buffer = result.buffer, .placement = needed};
  } else {
    TRIREME_CHECK(false);  // a family asks for a change of placement that no operator rule gives
  }
  return result;
}

View StageLowering::NewBuffer(const std::string& name, int64_t elements, Placement placement,
                              Stored stored, BufferPool pool) {
  const OperandSchema operand{.stored = stored};
  const tensor::DType dtype = operand.DTypeIn({.dtype = scope_.options.dtype});
  const auto width = static_cast<int64_t>(tensor::SizeOf(dtype));
  stage_.buffers.push_back({.name = name, .dtype = dtype, .bytes = elements * width, .pool = pool});
  return {.buffer = static_cast<int32_t>(stage_.buffers.size()) - 1, .placement = placement};
}

View StageLowering::NewOnStream(const std::string& name, BufferPool pool, bool gathered) {
  const bool roomy = gathered && scope_.stream == Placement::kRows;
  const int64_t rows = roomy ? scope_.rows : scope_.own_rows.size();
  const int64_t width = scope_.graph.hidden_size;
  View view = NewBuffer(name, rows * width, scope_.stream, Stored::kCompute, pool);
  view.offset = roomy ? scope_.own_rows.begin * width : 0;
  view.roomy = roomy;
  return view;
}

void StageLowering::Add(const Node& node, Phase phase, Views views) {
  LoweredOp op = Lower(node, phase, views);
  if (phase == Phase::kForward) return stage_.forward.push_back(std::move(op));
  if (phase == Phase::kInputGrad) return InputGradList().push_back(std::move(op));
  NoteGradients(op, views);
  const bool apart = scope_.options.split_backward && SchemaOf(node.op).weight_grad_waits;
  (apart ? stage_.weight_grad : InputGradList()).push_back(std::move(op));
}

LoweredOp& StageLowering::AddRows(OpList& list, const Node& node, Phase phase,
                                  const layout::Interval& rows, Views views) {
  LoweredOp op = Lower(node, phase, views, &rows);
  if (phase == Phase::kWeightGrad) NoteGradients(op, views);
  OperandRef& tokens = op.operand[kTokens];
  if (tokens.space != Space::kNone) {
    tokens.offset = rows.begin * static_cast<int64_t>(tensor::SizeOf(tensor::DType::kI32));
  }
  list.push_back(std::move(op));
  return list.back();
}

void StageLowering::NoteGradients(LoweredOp& op, Views views) {
  const bool of_own_rows = std::any_of(views.begin(), views.end(), [](const auto& operand) {
    return operand.first == kDY && operand.second.placement == Placement::kRows;
  });
  for (const Operand name : {kDB, kDW}) {
    if (op.operand[name].space == Space::kNone) continue;
    op.first_writer = written_.insert(op.operand[name].id).second;
    if (of_own_rows) stage_.partial_over_tensor.insert(op.operand[name].id);
  }
}

LoweredOp StageLowering::Lower(const Node& node, Phase phase, Views views,
                               const layout::Interval* rows) {
  const OpSchema& schema = SchemaOf(node.op);
  LoweredOp op{.spec = schema.spec(scope_, node), .name = node.name};
  op.spec.phase = phase;
  if (rows != nullptr) {
    op.spec.rows = rows->size();
    op.spec.row_begin = rows->begin;
  }
  op.flops = schema.flops == nullptr ? 0 : schema.flops(op.spec);
  for (const auto& [name, view] : views) {
    TRIREME_CHECK(schema.Find(phase, name) != nullptr);
    op.operand[name] = Ref(view);
  }
  for (const OperandSchema& operand : schema.Operands(phase)) {
    OperandRef& ref = op.operand[operand.name];
    if (ref.space == Space::kNone) ref = FromNode(node, op.spec, operand);
    TRIREME_CHECK(ref.space != Space::kNone || operand.optional);
  }
  return op;
}

OperandRef StageLowering::FromNode(const Node& node, const OpSpec& spec,
                                   const OperandSchema& operand) {
  if (operand.space == Space::kParameter || operand.space == Space::kGradient) {
    const bool bias = operand.name == kB || operand.name == kDB;
    const ParameterId id = bias ? node.bias : node.weight;
    if (id == kNone) return {};
    parameters_.insert(id);
    return {operand.space, id, 0};
  }
  if (operand.space != Space::kBuffer) return {operand.space, 0, 0};
  if (operand.name == kX) return Ref(value_.at(node.input));
  // An optional output is one that could be restored: RestoreOutputs asks for it.
  if (operand.name == kY) return operand.optional ? OperandRef{} : Ref(value_.at(node.output));
  if (operand.name == kResidual && node.residual != kNone) return Ref(value_.at(node.residual));
  if (operand.name != kStats) return {};
  if (operand.access == Access::kWrite) {
    statistics_[node.output] = NewBuffer(node.name + ".stats", operand.shape(spec).Span(),
                                         Placement::kReplicate, operand.stored);
  }
  return Ref(statistics_.at(node.output));
}

OperandRef StageLowering::Ref(const View& view) const {
  if (view.buffer == kNone) return {};
  const auto width = static_cast<int64_t>(tensor::SizeOf(stage_.buffers[view.buffer].dtype));
  return {Space::kBuffer, view.buffer, view.offset * width};
}

void StageLowering::AddCollective(OpList& list, OpKind kind, int32_t buffer,
                                  const std::string& name,
                                  std::pair<int64_t, int64_t> rows_and_width) {
  const auto [rows, width] = rows_and_width;
  const int64_t ranks = scope_.options.tensor_size;
  LoweredOp op{.name = name};
  op.spec.kind = kind;
  op.spec.dtype = stage_.buffers[buffer].dtype;
  op.spec.rows = scope_.rows;
  op.spec.cols = scope_.graph.hidden_size;
  op.spec.tensor_ranks = ranks;
  op.operand[kY] = {Space::kBuffer, buffer, 0};
  for (int64_t index = 0; index < ranks; ++index) {
    op.offsets.push_back(layout::SplitEvenly(rows, ranks, index).begin * width);
  }
  op.offsets.push_back(rows * width);
  list.push_back(std::move(op));
}

}  // namespace trireme::graph
