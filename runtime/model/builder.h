// GraphBuilder: the steps that families share when they write down their operators.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/graph.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::model {

class GraphBuilder {
 public:
  explicit GraphBuilder(const v1::ModelConfig& config);

  // Operators of later calls belong to this block.
  void EnterBlock(int block) { block_ = block; }
  graph::ParameterId Parameter(graph::Parameter parameter);
  // A norm's gamma (ones) or a bias (zeros): replicated, not decayed.
  graph::ParameterId Vector(const std::string& name, graph::Initial initial);

  graph::ValueId Embedding(const std::string& name, graph::ParameterId weight);
  graph::ValueId PositionEmbedding(graph::ValueId input, graph::ParameterId weight);
  graph::ValueId Norm(graph::OpKind kind, const std::string& name, graph::ValueId input,
                      graph::ParameterId weight, graph::ParameterId bias);
  graph::ValueId Linear(const std::string& name, graph::ValueId input, graph::LinearKind kind,
                        std::vector<graph::LinearPart> parts);
  // kGelu, kSwiGlu, kAttention or kRope; the output of kRope is its input, rotated in place.
  graph::ValueId Apply(graph::OpKind kind, const std::string& name, graph::ValueId input,
                       graph::Columns columns, double dropout_p = 0);
  // residual + dropout(input + bias); residual and bias may be kNone.
  graph::ValueId ResidualAdd(const std::string& name, graph::ValueId input, graph::ValueId residual,
                             graph::ParameterId bias, double dropout_p);
  void HeadAndLoss(graph::ValueId input, graph::ParameterId weight);

  graph::ModelGraph& graph() { return graph_; }
  graph::Columns residual_columns() const { return {.fixed = graph_.hidden_size}; }
  void set_weight_layout(graph::WeightLayout layout) { weight_layout_ = layout; }

 private:
  graph::ValueId AddNode(graph::Node node, graph::Columns columns);

  graph::ModelGraph graph_;
  graph::WeightLayout weight_layout_ = graph::WeightLayout::kOutIn;
  int block_ = 0;
};

graph::ModelGraph BuildGpt2(const v1::ModelConfig& config);
graph::ModelGraph BuildLlama(const v1::ModelConfig& config);

}  // namespace trireme::model
