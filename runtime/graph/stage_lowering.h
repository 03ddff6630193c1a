// The walk behind LowerStage: forward over the nodes, then backward over them in reverse, each by
// the rules of its operator's schema, which see this class. The gradient of a value lies as its
// dual: what was gathered is reduce-scattered, what was summed is replicated. Internal to
// runtime/graph.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/lowering.h"

namespace trireme::graph {

// What is the same for all operators of a stage.
struct LoweringScope {
  const ModelGraph& graph;
  const LoweringOptions options;
  const int64_t rows;               // B * T
  const layout::Interval own_rows;  // those of the residual stream that this rank has
  const Placement stream;           // of the residual stream
  const ValueId stage_input;        // kNone in the first stage
  const ValueId stage_output;       // kNone in the last stage

  // This rank's part of what the tensor axis cuts.
  layout::Interval ShareOf(int64_t units) const {
    return layout::SplitEvenly(units, options.tensor_size, options.tensor_index);
  }
  int64_t WidthOf(const Columns& columns) const {
    return columns.Local(options.tensor_size, options.tensor_index);
  }
  int64_t ColumnsOf(ValueId value) const { return WidthOf(graph.values[value].columns); }
};

// Where a value or gradient is and how it lies over the tensor axis.
struct View {
  int32_t buffer = kNone;
  int64_t offset = 0;  // elements
  Placement placement = Placement::kReplicate;
  // Of a rows view: its buffer holds the rows of all ranks. Not told from sizes, which may agree
  // by chance on one rank and not on the next; then their lists would differ.
  bool roomy = false;
};
using Views = std::initializer_list<std::pair<Operand, View>>;

class StageLowering {
 public:
  StageLowering(const ModelGraph& graph, int first_block, int end_block,
                const LoweringOptions& options);
  StageOps Run();

  const LoweringScope& scope() const { return scope_; }
  StageOps& ops() { return stage_; }

  // The value that `node` reads, with placement `needed`; gathered once for all that read it so.
  View Input(const Node& node, Placement needed);
  // A Partial view is summed to the stream's placement.
  void SetOutput(const Node& node, const View& view);
  View OutputGradient(const Node& node, Placement needed);
  // Without a buffer where there is none yet.
  View Gradient(ValueId value) const {
    return gradient_.count(value) == 0 ? View{} : gradient_.at(value);
  }
  void SetGradient(ValueId value, const View& view) { gradient_[value] = view; }

  // [all rows, width].
  View New(const std::string& name, int64_t width, Placement placement,
           Stored stored = Stored::kCompute) {
    return NewBuffer(name, scope_.rows * width, placement, stored);
  }
  // [own rows, C] in the residual stream; `gathered`: at this rank's own in a buffer of all rows.
  View NewOnStream(const std::string& name, BufferPool pool = BufferPool::kTemporary,
                   bool gathered = false);
  // [rows, width].
  View NewRows(const std::string& name, int64_t rows, int64_t width, Placement placement,
               Stored stored = Stored::kCompute) {
    return NewBuffer(name, rows * width, placement, stored);
  }
  // Adds one phase of `node` to its list. Operands that the schema names and `views` does not come
  // from the node: its input, output, residual, parameters, tokens, and the statistics of its
  // forward. A gradient that sums over own rows of the stream leaves its parameter Partial.
  void Add(const Node& node, Phase phase, Views views);
  // The same on some rows of the micro-batch, at which the views begin, and in `list`.
  LoweredOp& AddRows(std::vector<LoweredOp>& list, const Node& node, Phase phase,
                     const layout::Interval& rows, Views views);
  // In place on all of `buffer`: `rows` rows of `width` elements, cut evenly.
  void AddCollective(std::vector<LoweredOp>& list, OpKind kind, int32_t buffer,
                     const std::string& name, std::pair<int64_t, int64_t> rows_and_width);

  // Of input-grads, or of all of backward where it is one list.
  std::vector<LoweredOp>& InputGradList() {
    return scope_.options.split_backward ? stage_.input_grad : stage_.backward;
  }

 private:
  using OpList = std::vector<LoweredOp>;

  void NameBlock(int32_t block);
  // The view with placement `needed`, inserting the collective that takes it there.
  View Redistribute(OpList& list, const View& view, Placement needed, const std::string& name);
  View NewBuffer(const std::string& name, int64_t elements, Placement placement, Stored stored,
                 BufferPool pool = BufferPool::kTemporary);
  // `rows`: null for those that the node's schema says.
  LoweredOp Lower(const Node& node, Phase phase, Views views,
                  const layout::Interval* rows = nullptr);
  // Of an operator that writes gradients: whether it is the first that does.
  void NoteGradients(LoweredOp& op, Views views);
  OperandRef FromNode(const Node& node, const OpSpec& spec, const OperandSchema& operand);
  OperandRef Ref(const View& view) const;

  std::vector<const Node*> nodes_;
  const LoweringScope scope_;
  StageOps stage_;
  std::map<ValueId, View> value_;
  std::map<ValueId, View> gathered_;  // values after their gather to Replicate
  std::map<ValueId, View> gradient_;
  std::map<ValueId, View> statistics_;  // by the node's output
  std::set<ParameterId> parameters_, written_;
};

}  // namespace trireme::graph
