#include "runtime/model/builder.h"

namespace trireme::model {

using graph::Columns;
using graph::kNone;
using graph::Node;
using graph::OpKind;
using graph::ParameterId;
using graph::ValueId;

GraphBuilder::GraphBuilder(const v1::ModelConfig& config) {
  graph_.hidden_size = config.hidden_size();
  graph_.vocab_size = config.vocab_size();
  graph_.heads = config.num_attention_heads();
  graph_.kv_heads = config.num_key_value_heads();
  graph_.head_dim = config.head_dim();
  graph_.epsilon = config.norm_epsilon();
  graph_.rope_theta = config.rope_theta();
  graph_.blocks = static_cast<int>(config.num_hidden_layers()) + 2;
}

ParameterId GraphBuilder::Parameter(graph::Parameter parameter) {
  parameter.block = block_;
  graph_.parameters.push_back(std::move(parameter));
  return static_cast<ParameterId>(graph_.parameters.size()) - 1;
}

ParameterId GraphBuilder::Vector(const std::string& name, graph::Initial initial) {
  return Parameter({.name = name, .shape = {graph_.hidden_size}, .initial = initial});
}

ValueId GraphBuilder::AddNode(Node node, Columns columns) {
  const ValueId output = static_cast<ValueId>(graph_.values.size());
  graph_.values.push_back({.name = node.name, .columns = columns});
  node.block = block_;
  node.output = output;
  node.weight_layout = weight_layout_;
  graph_.nodes.push_back(std::move(node));
  return output;
}

ValueId GraphBuilder::Embedding(const std::string& name, ParameterId weight) {
  return AddNode({.op = OpKind::kEmbedding, .name = name, .weight = weight}, residual_columns());
}

ValueId GraphBuilder::PositionEmbedding(ValueId input, ParameterId weight) {
  return AddNode(
      {.op = OpKind::kPositionEmbedding, .name = "wpe", .input = input, .weight = weight},
      residual_columns());
}

ValueId GraphBuilder::Norm(OpKind kind, const std::string& name, ValueId input, ParameterId weight,
                           ParameterId bias) {
  return AddNode({.op = kind, .name = name, .input = input, .weight = weight, .bias = bias},
                 residual_columns());
}

ValueId GraphBuilder::Linear(const std::string& name, ValueId input, graph::LinearKind kind,
                             std::vector<graph::LinearPart> parts) {
  Columns columns;
  for (const graph::LinearPart& part : parts) {
    columns.fixed += part.columns.fixed;
    columns.units = part.columns.units;
    columns.unit_width += part.columns.unit_width;
  }
  return AddNode({.op = OpKind::kLinear,
                  .name = name,
                  .input = input,
                  .parts = std::move(parts),
                  .linear_kind = kind},
                 columns);
}

ValueId GraphBuilder::Apply(OpKind kind, const std::string& name, ValueId input, Columns columns,
                            double dropout_p) {
  return AddNode({.op = kind, .name = name, .input = input, .dropout_p = dropout_p}, columns);
}

ValueId GraphBuilder::ResidualAdd(const std::string& name, ValueId input, ValueId residual,
                                  ParameterId bias, double dropout_p) {
  return AddNode({.op = OpKind::kResidualAdd,
                  .name = name,
                  .input = input,
                  .residual = residual,
                  .bias = bias,
                  .dropout_p = dropout_p},
                 residual_columns());
}

void GraphBuilder::HeadAndLoss(ValueId input, ParameterId weight) {
  AddNode({.op = OpKind::kLmHeadLoss, .name = "lm_head", .input = input, .weight = weight},
          {.units = graph_.vocab_size, .unit_width = 1});
  graph_.nodes.back().weight_layout = graph::WeightLayout::kOutIn;
}

}  // namespace trireme::model
