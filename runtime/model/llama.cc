// Llama (Touvron et al. 2302.13971): RMSNorm, rotary positions, SwiGLU, grouped key/value heads,
// untied head. Names and orientations of Hugging Face's LlamaForCausalLM: weights are [out, in].
#include "runtime/model/builder.h"

namespace trireme::model {

using graph::Initial;
using graph::kNone;
using graph::LinearKind;
using graph::OpKind;
using graph::ParameterId;
using graph::ValueId;

namespace {

class LlamaBuilder {
 public:
  explicit LlamaBuilder(const v1::ModelConfig& config)
      : config_(config),
        builder_(config),
        group_(config.num_attention_heads() / config.num_key_value_heads()) {}

  graph::ModelGraph Build() {
    const int64_t layers = config_.num_hidden_layers();
    const std::vector<int64_t> table{config_.vocab_size(), config_.hidden_size()};
    const ParameterId embedding = Weight("model.embed_tokens.weight", table, 0);
    if (config_.tie_word_embeddings()) builder_.graph().tied = embedding;
    ValueId x = builder_.Embedding("model.embed_tokens", embedding);
    for (int64_t layer = 0; layer < layers; ++layer) {
      builder_.EnterBlock(static_cast<int>(layer) + 1);
      const std::string name = "model.layers." + std::to_string(layer);
      x = Mlp(Attention(x, name), name);
    }
    builder_.EnterBlock(static_cast<int>(layers) + 1);
    x = RmsNorm("model.norm", x);
    builder_.HeadAndLoss(
        x, config_.tie_word_embeddings() ? embedding : Weight("lm_head.weight", table, 0));
    return std::move(builder_.graph());
  }

 private:
  ParameterId Weight(const std::string& name, std::vector<int64_t> shape, int shard_dim) {
    return builder_.Parameter({.name = name,
                               .shape = std::move(shape),
                               .shard_dim = shard_dim,
                               .decay = true,
                               .initial = Initial::kNormal,
                               .standard_deviation = config_.initializer_range()});
  }
  ValueId RmsNorm(const std::string& name, ValueId x) {
    return builder_.Norm(OpKind::kRmsNorm, name, x,
                         builder_.Vector(name + ".weight", Initial::kOnes), kNone);
  }

  ValueId Attention(ValueId x, const std::string& name) {
    const int64_t hidden = config_.hidden_size();
    const int64_t kv = config_.num_key_value_heads();
    const int64_t width = config_.head_dim();
    const ValueId normed = RmsNorm(name + ".input_layernorm", x);
    const std::string attention = name + ".self_attn";
    // The tensor axis cuts whole groups: a key/value head with the query heads that read it.
    const ParameterId q = Weight(attention + ".q_proj.weight", {kv, group_, width, hidden}, 0);
    const ParameterId k = Weight(attention + ".k_proj.weight", {kv, width, hidden}, 0);
    const ParameterId v = Weight(attention + ".v_proj.weight", {kv, width, hidden}, 0);
    const graph::Columns one{.units = kv, .unit_width = width};
    const graph::Columns queries{.units = kv, .unit_width = group_ * width};
    ValueId qkv = builder_.Linear(attention + ".qkv", normed, LinearKind::kColumnParallel,
                                  {{.weight = q, .columns = queries},
                                   {.weight = k, .columns = one},
                                   {.weight = v, .columns = one}});
    qkv = builder_.Apply(OpKind::kRope, attention + ".rope", qkv,
                         {.units = kv, .unit_width = (group_ + 2) * width});
    const ValueId mixed = builder_.Apply(OpKind::kAttention, attention, qkv, queries);
    const ParameterId o = Weight(attention + ".o_proj.weight", {hidden, kv, group_, width}, 1);
    const ValueId y = builder_.Linear(attention + ".o_proj", mixed, LinearKind::kRowParallel,
                                      {{.weight = o, .columns = {.fixed = hidden}}});
    return builder_.ResidualAdd(attention + ".add", y, x, kNone, 0);
  }

  ValueId Mlp(ValueId x, const std::string& name) {
    const int64_t hidden = config_.hidden_size();
    const int64_t inner = config_.intermediate_size();
    const ValueId normed = RmsNorm(name + ".post_attention_layernorm", x);
    const ParameterId gate = Weight(name + ".mlp.gate_proj.weight", {inner, hidden}, 0);
    const ParameterId up = Weight(name + ".mlp.up_proj.weight", {inner, hidden}, 0);
    const graph::Columns columns{.units = inner, .unit_width = 1};
    const ValueId wide =
        builder_.Linear(name + ".mlp.gate_up", normed, LinearKind::kColumnParallel,
                        {{.weight = gate, .columns = columns}, {.weight = up, .columns = columns}});
    const ValueId active = builder_.Apply(OpKind::kSwiGlu, name + ".mlp.act", wide, columns);
    const ParameterId down = Weight(name + ".mlp.down_proj.weight", {hidden, inner}, 1);
    const ValueId y = builder_.Linear(name + ".mlp.down_proj", active, LinearKind::kRowParallel,
                                      {{.weight = down, .columns = {.fixed = hidden}}});
    return builder_.ResidualAdd(name + ".mlp.add", y, x, kNone, 0);
  }

  const v1::ModelConfig& config_;
  GraphBuilder builder_;
  int64_t group_;
};

}  // namespace

graph::ModelGraph BuildLlama(const v1::ModelConfig& config) { return LlamaBuilder(config).Build(); }

}  // namespace trireme::model
