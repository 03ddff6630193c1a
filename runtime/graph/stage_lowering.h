// The walk behind LowerStage: forward over the nodes, then backward over them in reverse. Internal
// to runtime/graph.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/lowering.h"

namespace trireme::graph {

class StageLowering {
 public:
  StageLowering(const ModelGraph& graph, int first_block, int end_block,
                const LoweringOptions& options);
  StageOps Run();

 private:
  // Where a value or gradient is and how it lies over the tensor axis.
  struct View {
    int32_t buffer = kNone;
    int64_t offset = 0;  // elements
    Placement placement = Placement::kReplicate;
    // Of a rows view: its buffer holds the rows of all ranks. Not told from sizes, which may agree
    // by chance on one rank and not on the next; then their lists would differ.
    bool roomy = false;
  };
  using OpList = std::vector<LoweredOp>;

  void NameBlock(int32_t block);
  // Forward, one function per group of operators.
  void Forward(const Node& node);
  void ForwardEmbedding(const Node& node);
  void ForwardRowWise(const Node& node);  // norms, ResidualAdd, PositionEmbedding
  void ForwardLinear(const Node& node);
  void ForwardColumnWise(const Node& node);  // Rope, Attention, Gelu, SwiGlu
  void ForwardLoss(const Node& node);
  // Backward.
  void Backward(const Node& node);
  void BackwardEmbedding(const Node& node);
  void BackwardPositionEmbedding(const Node& node);
  void BackwardNorm(const Node& node);
  void BackwardResidualAdd(const Node& node);
  void BackwardLinear(const Node& node);
  void BackwardColumnWise(const Node& node);
  void BackwardLoss(const Node& node);

  // The view with placement `needed`, inserting the collective that takes it there.
  View Redistribute(OpList& list, const View& view, Placement needed, const std::string& name);
  void AddCollective(OpList& list, OpKind kind, int32_t buffer, const std::string& name);
  // A rows view in a buffer of own rows only is copied into one of all rows.
  View WithRoomForAllRows(OpList& list, const View& view, const std::string& name);

  // Of the compute dtype.
  int32_t NewBuffer(const std::string& name, int64_t elements,
                    BufferPool pool = BufferPool::kTemporary);
  // Of its accumulator: what is summed over rows or columns.
  int32_t NewStatistics(const std::string& name, int64_t elements);
  // A [rows of the stream, C] value; `gathered`: in a buffer of all rows, at this rank's own.
  View NewStreamView(const std::string& name, bool gathered);
  View OutputView(const Node& node, bool gathered);
  OpSpec RowSpec(const Node& node, Phase phase) const;
  OpSpec ColumnSpec(const Node& node, Phase phase) const;
  OpSpec LinearSpec(const Node& node, const LinearPart& part, Phase phase) const;
  OpSpec LossSpec(const Node& node, Phase phase) const;
  LoweredOp Op(const OpSpec& spec, const std::string& name) const;
  // `extra`: elements.
  OperandRef Ref(const View& view, int64_t extra = 0) const;
  static OperandRef ParameterRef(ParameterId id);
  static OperandRef GradientRef(ParameterId id);
  OpList& WeightGradList() {
    return options_.split_backward ? stage_.weight_grad : stage_.backward;
  }
  OpList& InputGradList() { return options_.split_backward ? stage_.input_grad : stage_.backward; }
  void AddWeightGrad(LoweredOp op) { AddWeightGrad(std::move(op), WeightGradList()); }
  void AddWeightGrad(LoweredOp op, OpList& list);
  View Gradient(ValueId value) const;
  int64_t LocalColumns(ValueId value) const;
  Placement stream_placement() const;

  const ModelGraph& graph_;
  const int first_block_;
  const int end_block_;
  const LoweringOptions options_;
  const int64_t rows_;  // B * T
  const layout::Interval local_rows_;
  StageOps stage_;
  ValueId stage_input_ = kNone;
  ValueId stage_output_ = kNone;
  std::map<ValueId, View> value_;
  std::map<ValueId, View> gathered_;  // rows values after their all-gather
  std::map<ValueId, View> gradient_;
  std::map<ValueId, int32_t> saved_;  // statistics by the node's output
  std::set<ParameterId> written_;
  int32_t loss_lse_ = kNone;
};

}  // namespace trireme::graph
