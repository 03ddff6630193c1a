// GPT-2 (Radford et al. 2019), parameter names and orientations of Hugging Face's GPT2LMHeadModel:
// Conv1D weights are [in, out]. `bias: false` leaves out every bias (as nanoGPT does).
#include <cmath>

#include "runtime/model/builder.h"

namespace trireme::model {

using graph::Initial;
using graph::kNone;
using graph::LinearKind;
using graph::OpKind;
using graph::ParameterId;
using graph::ValueId;

namespace {

class Gpt2Builder {
 public:
  explicit Gpt2Builder(const v1::ModelConfig& config) : config_(config), builder_(config) {
    builder_.set_weight_layout(graph::WeightLayout::kInOut);
  }

  graph::ModelGraph Build() {
    const int64_t layers = config_.num_hidden_layers();
    ValueId x = Embeddings();
    for (int64_t layer = 0; layer < layers; ++layer) {
      builder_.EnterBlock(static_cast<int>(layer) + 1);
      x = Mlp(Attention(x, layer), layer);
    }
    builder_.EnterBlock(static_cast<int>(layers) + 1);
    x = LayerNorm("ln_f", x);
    ParameterId head = wte_;
    if (!config_.tie_word_embeddings()) {
      head = Weight("lm_head.weight", {config_.vocab_size(), config_.hidden_size()}, 0, 1.0);
    }
    builder_.HeadAndLoss(x, head);
    return std::move(builder_.graph());
  }

 private:
  ParameterId Weight(const std::string& name, std::vector<int64_t> shape, int shard_dim,
                     double scale) {
    return builder_.Parameter({.name = name,
                               .shape = std::move(shape),
                               .shard_dim = shard_dim,
                               .decay = true,
                               .initial = Initial::kNormal,
                               .standard_deviation = config_.initializer_range() * scale});
  }
  ParameterId Bias(const std::string& name, std::vector<int64_t> shape, int shard_dim) {
    if (!config_.bias()) return kNone;
    return builder_.Parameter({.name = name,
                               .shape = std::move(shape),
                               .shard_dim = shard_dim,
                               .initial = Initial::kZeros});
  }
  ValueId LayerNorm(const std::string& name, ValueId x) {
    const ParameterId gamma = builder_.Vector(name + ".weight", Initial::kOnes);
    const ParameterId beta =
        config_.bias() ? builder_.Vector(name + ".bias", Initial::kZeros) : kNone;
    return builder_.Norm(OpKind::kLayerNorm, name, x, gamma, beta);
  }
  // Residual projections start smaller by 1/sqrt(2 L) (GPT-2 paper, section 2.3).
  double ResidualScale() const {
    return 1.0 / std::sqrt(2.0 * static_cast<double>(config_.num_hidden_layers()));
  }

  ValueId Embeddings() {
    const int64_t hidden = config_.hidden_size();
    wte_ = Weight("wte.weight", {config_.vocab_size(), hidden}, 0, 1.0);
    if (config_.tie_word_embeddings()) builder_.graph().tied = wte_;
    ValueId x = builder_.Embedding("wte", wte_);
    x = builder_.PositionEmbedding(
        x, Weight("wpe.weight", {config_.max_position_embeddings(), hidden}, kNone, 1.0));
    if (config_.embd_pdrop() > 0) {
      x = builder_.ResidualAdd("drop", x, kNone, kNone, config_.embd_pdrop());
    }
    return x;
  }

  ValueId Attention(ValueId x, int64_t layer) {
    const std::string name = "h." + std::to_string(layer);
    const int64_t hidden = config_.hidden_size();
    const int64_t heads = config_.num_attention_heads();
    const int64_t width = config_.head_dim();
    const ValueId normed = LayerNorm(name + ".ln_1", x);
    const ParameterId weight =
        Weight(name + ".attn.c_attn.weight", {hidden, 3, heads, width}, 2, 1.0);
    const ParameterId bias = Bias(name + ".attn.c_attn.bias", {3, heads, width}, 1);
    const ValueId qkv = builder_.Linear(
        name + ".attn.c_attn", normed, LinearKind::kColumnParallel,
        {{.weight = weight, .bias = bias, .columns = {.units = heads, .unit_width = 3 * width}}});
    const ValueId mixed =
        builder_.Apply(OpKind::kAttention, name + ".attn", qkv,
                       {.units = heads, .unit_width = width}, config_.attn_pdrop());
    const ParameterId projection =
        Weight(name + ".attn.c_proj.weight", {heads, width, hidden}, 0, ResidualScale());
    const ParameterId projection_bias = Bias(name + ".attn.c_proj.bias", {hidden}, kNone);
    const ValueId y = builder_.Linear(name + ".attn.c_proj", mixed, LinearKind::kRowParallel,
                                      {{.weight = projection, .columns = {.fixed = hidden}}});
    return builder_.ResidualAdd(name + ".attn.add", y, x, projection_bias, config_.resid_pdrop());
  }

  ValueId Mlp(ValueId x, int64_t layer) {
    const std::string name = "h." + std::to_string(layer);
    const int64_t hidden = config_.hidden_size();
    const int64_t inner = config_.intermediate_size();
    const ValueId normed = LayerNorm(name + ".ln_2", x);
    const ParameterId weight = Weight(name + ".mlp.c_fc.weight", {hidden, inner}, 1, 1.0);
    const ParameterId bias = Bias(name + ".mlp.c_fc.bias", {inner}, 0);
    const graph::Columns columns{.units = inner, .unit_width = 1};
    const ValueId wide = builder_.Linear(name + ".mlp.c_fc", normed, LinearKind::kColumnParallel,
                                         {{.weight = weight, .bias = bias, .columns = columns}});
    const ValueId active = builder_.Apply(OpKind::kGelu, name + ".mlp.act", wide, columns);
    const ParameterId projection =
        Weight(name + ".mlp.c_proj.weight", {inner, hidden}, 0, ResidualScale());
    const ParameterId projection_bias = Bias(name + ".mlp.c_proj.bias", {hidden}, kNone);
    const ValueId y = builder_.Linear(name + ".mlp.c_proj", active, LinearKind::kRowParallel,
                                      {{.weight = projection, .columns = {.fixed = hidden}}});
    return builder_.ResidualAdd(name + ".mlp.add", y, x, projection_bias, config_.resid_pdrop());
  }

  const v1::ModelConfig& config_;
  GraphBuilder builder_;
  ParameterId wte_ = kNone;
};

}  // namespace

graph::ModelGraph BuildGpt2(const v1::ModelConfig& config) { return Gpt2Builder(config).Build(); }

}  // namespace trireme::model
