// A model of a few layers whose widths divide unevenly, as graph tests lower it.
#pragma once

#include <string>

#include "runtime/model/model.h"

namespace trireme::graph {

struct SmallModelOptions {
  int layers = 3;
  double residual_dropout = 0;
};

// `family`: gpt2 (biases, as many key/value heads as heads) or llama (neither).
inline ModelGraph SmallModel(const std::string& family, const SmallModelOptions& options = {}) {
  v1::ModelConfig config;
  config.set_model_type(family);
  config.set_num_hidden_layers(options.layers);
  config.set_num_attention_heads(4);
  config.set_num_key_value_heads(family == "gpt2" ? 4 : 2);
  config.set_head_dim(6);
  config.set_hidden_size(24);
  config.set_intermediate_size(40);
  config.set_vocab_size(29);
  config.set_max_position_embeddings(8);
  config.set_bias(family == "gpt2");
  config.set_resid_pdrop(options.residual_dropout);
  return *model::BuildModel(config);
}

}  // namespace trireme::graph
