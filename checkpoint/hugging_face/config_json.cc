#include "checkpoint/hugging_face/config_json.h"

#include <nlohmann/json.hpp>

#include "runtime/json/json_text.h"

namespace trireme::checkpoint {
namespace {

using nlohmann::ordered_json;

ordered_json Gpt2(const v1::ModelConfig& config) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"n_embd", config.hidden_size()},
          {"n_layer", config.num_hidden_layers()},
          {"n_head", config.num_attention_heads()},
          {"n_inner", config.intermediate_size()},
          {"n_positions", config.max_position_embeddings()},
          {"vocab_size", config.vocab_size()},
          {"layer_norm_epsilon", config.norm_epsilon()},
          {"activation_function", "gelu_new"},
          {"embd_pdrop", config.embd_pdrop()},
          {"attn_pdrop", config.attn_pdrop()},
          {"resid_pdrop", config.resid_pdrop()},
          {"bias", config.bias()}};
}

ordered_json Llama(const v1::ModelConfig& config) {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", config.hidden_size()},
          {"num_hidden_layers", config.num_hidden_layers()},
          {"num_attention_heads", config.num_attention_heads()},
          {"num_key_value_heads", config.num_key_value_heads()},
          {"head_dim", config.head_dim()},
          {"intermediate_size", config.intermediate_size()},
          {"max_position_embeddings", config.max_position_embeddings()},
          {"vocab_size", config.vocab_size()},
          {"rms_norm_eps", config.norm_epsilon()},
          {"rope_theta", config.rope_theta()},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false}};
}

}  // namespace

std::string ConfigJson(const v1::ModelConfig& config, tensor::DType dtype) {
  ordered_json json = config.model_type() == "gpt2" ? Gpt2(config) : Llama(config);
  json["initializer_range"] = config.initializer_range();
  json["tie_word_embeddings"] = config.tie_word_embeddings();
  json["torch_dtype"] = dtype == tensor::DType::kF64 ? "float64" : "float32";
  return json_text::Write(json, 2) + "\n";
}

}  // namespace trireme::checkpoint
