#include "tests/runtime/engine/plain_model.h"

#include <algorithm>
#include <cmath>

namespace trireme::engine {

namespace {

size_t Size(int64_t value) { return static_cast<size_t>(value); }

// What a dropout of probability `p` multiplies element `index` with.
double Factor(const PlainStep& step, const std::string& site, double p, uint64_t index) {
  const auto threshold = static_cast<uint64_t>(p * 4294967296.0);
  return PlainUniform32(step.seed, site, step.step, index) < threshold ? 0.0 : 1.0 / (1.0 - p);
}

Matrix Rows(const Matrix& x, size_t begin, size_t count) {
  Matrix part;
  for (const std::vector<double>& row : x) {
    const auto first = row.begin() + static_cast<std::ptrdiff_t>(begin);
    part.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
  }
  return part;
}

double Gelu(double x) {
  const double root = std::sqrt(2 / std::acos(-1.0));
  return 0.5 * x * (1 + std::tanh(root * (x + 0.044715 * x * x * x)));
}

}  // namespace

std::vector<uint32_t> PlainPhilox(const std::vector<uint32_t>& counter,
                                  const std::vector<uint32_t>& key) {
  std::vector<uint32_t> c = counter, k = key;
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{c[0]} * 3528531795U, right = uint64_t{c[2]} * 3449720151U;
    c = {static_cast<uint32_t>(right / 4294967296U) ^ c[1] ^ k[0],
         static_cast<uint32_t>(right % 4294967296U),
         static_cast<uint32_t>(left / 4294967296U) ^ c[3] ^ k[1],
         static_cast<uint32_t>(left % 4294967296U)};
    k = {k[0] + 2654435769U, k[1] + 3144134277U};
  }
  return c;
}

uint32_t PlainUniform32(uint64_t seed, const std::string& site, uint64_t step, uint64_t index) {
  uint64_t name = 14695981039346656037U;
  for (const char letter : site)
    name = (name ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  const uint64_t key = seed ^ (name * 11400714819323198485U + name / 536870912U);
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value % 4294967296U); };
  const auto high = [](uint64_t value) { return static_cast<uint32_t>(value / 4294967296U); };
  const uint64_t block = index / 4;
  return PlainPhilox({low(block), high(block), low(step), high(step)},
                     {low(key), high(key)})[index % 4];
}

Matrix PlainModel::Logits(std::span<const int32_t> tokens, const PlainStep* step) const {
  return config_.model_type() == "gpt2" ? Gpt2(tokens, step) : Llama(tokens);
}

PlainModel::Loss PlainModel::LossOf(std::span<const int32_t> tokens,
                                    std::span<const int32_t> targets, const PlainStep* step) const {
  Loss loss;
  const Matrix logits = Logits(tokens, step);
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (targets[t] < 0) continue;
    const double largest = *std::max_element(logits[t].begin(), logits[t].end());
    double sum = 0;
    for (const double logit : logits[t]) sum += std::exp(logit - largest);
    loss.sum += largest + std::log(sum) - logits[t][Size(targets[t])];
    ++loss.counted;
  }
  return loss;
}

Matrix PlainModel::Linear(const std::string& name, const Matrix& x, bool transposed) const {
  const std::vector<double>& weight = weights_.at(name + ".weight");
  const auto bias = weights_.find(name + ".bias");
  const size_t in = x[0].size(), out = weight.size() / in;
  Matrix y(x.size(), std::vector<double>(out, 0.0));
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t o = 0; o < out; ++o) {
      if (bias != weights_.end()) y[t][o] = bias->second[o];
      for (size_t i = 0; i < in; ++i) {
        y[t][o] += x[t][i] * (transposed ? weight[o * in + i] : weight[i * out + o]);
      }
    }
  }
  return y;
}

Matrix PlainModel::LayerNorm(const std::string& name, const Matrix& x) const {
  const std::vector<double>& gamma = weights_.at(name + ".weight");
  const auto beta = weights_.find(name + ".bias");
  Matrix y = x;
  for (std::vector<double>& row : y) {
    const auto count = static_cast<double>(row.size());
    double mean = 0, variance = 0;
    for (const double value : row) mean += value / count;
    for (const double value : row) variance += (value - mean) * (value - mean) / count;
    for (size_t c = 0; c < row.size(); ++c) {
      row[c] = (row[c] - mean) / std::sqrt(variance + config_.norm_epsilon()) * gamma[c];
      if (beta != weights_.end()) row[c] += beta->second[c];
    }
  }
  return y;
}

Matrix PlainModel::RmsNorm(const std::string& name, const Matrix& x) const {
  const std::vector<double>& gamma = weights_.at(name + ".weight");
  Matrix y = x;
  for (std::vector<double>& row : y) {
    double square = 0;
    for (const double value : row) square += value * value / static_cast<double>(row.size());
    for (size_t c = 0; c < row.size(); ++c) {
      row[c] = row[c] / std::sqrt(square + config_.norm_epsilon()) * gamma[c];
    }
  }
  return y;
}

Matrix PlainModel::Attention(const Matrix& q, const Matrix& k, const Matrix& v,
                             const std::string& site, const PlainStep* step) const {
  const size_t width = Size(config_.head_dim()), tokens = q.size();
  const size_t heads = Size(config_.num_attention_heads());
  const size_t group = heads / Size(config_.num_key_value_heads());
  Matrix y(tokens, std::vector<double>(heads * width, 0.0));
  for (size_t head = 0; head < heads; ++head) {
    for (size_t t = 0; t < tokens; ++t) {
      std::vector<double> weight(t + 1);
      double total = 0;
      for (size_t s = 0; s <= t; ++s) {
        double dot = 0;
        for (size_t d = 0; d < width; ++d) {
          dot += q[t][head * width + d] * k[s][head / group * width + d];
        }
        weight[s] = std::exp(dot / std::sqrt(static_cast<double>(width)));
        total += weight[s];
      }
      for (size_t s = 0; s <= t; ++s) {
        double share = weight[s] / total;
        if (step != nullptr && config_.attn_pdrop() > 0) {
          const uint64_t row = (Size(step->sample) * heads + head) * tokens + t;
          share *= Factor(*step, site, config_.attn_pdrop(), row * tokens + s);
        }
        for (size_t d = 0; d < width; ++d) {
          y[t][head * width + d] += share * v[s][head / group * width + d];
        }
      }
    }
  }
  return y;
}

// Pairs (i, i + D/2) of each head, turned by t * theta^(-2i/D).
Matrix PlainModel::Rotated(const Matrix& x) const {
  const size_t width = Size(config_.head_dim()), half = width / 2;
  Matrix y = x;
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t at = 0; at < x[t].size(); at += width) {
      for (size_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) *
                             std::pow(config_.rope_theta(),
                                      -2.0 * static_cast<double>(i) / static_cast<double>(width));
        const double first = x[t][at + i], second = x[t][at + half + i];
        y[t][at + i] = first * std::cos(angle) - second * std::sin(angle);
        y[t][at + half + i] = second * std::cos(angle) + first * std::sin(angle);
      }
    }
  }
  return y;
}

void PlainModel::AddDropped(const Matrix& y, const std::string& site, double p,
                            const PlainStep* step, Matrix& x) const {
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t c = 0; c < x[t].size(); ++c) {
      double factor = 1;
      if (step != nullptr && p > 0) {
        factor = Factor(*step, site, p, (Size(step->sample) * x.size() + t) * x[t].size() + c);
      }
      x[t][c] += factor * y[t][c];
    }
  }
}

Matrix PlainModel::Head(const std::string& name, const Matrix& x) const {
  const std::vector<double>& table = weights_.at(name);
  const size_t width = x[0].size();
  Matrix logits(x.size(), std::vector<double>(table.size() / width, 0.0));
  for (size_t t = 0; t < x.size(); ++t) {
    for (size_t token = 0; token < logits[t].size(); ++token) {
      for (size_t c = 0; c < width; ++c) logits[t][token] += x[t][c] * table[token * width + c];
    }
  }
  return logits;
}

Matrix PlainModel::Gpt2(std::span<const int32_t> tokens, const PlainStep* step) const {
  const size_t width = Size(config_.hidden_size());
  const size_t inner = Size(config_.num_attention_heads() * config_.head_dim());
  Matrix embedded(tokens.size(), std::vector<double>(width));
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t c = 0; c < width; ++c) {
      embedded[t][c] = weights_.at("wte.weight")[Size(tokens[t]) * width + c] +
                       weights_.at("wpe.weight")[t * width + c];
    }
  }
  Matrix x(tokens.size(), std::vector<double>(width, 0.0));
  AddDropped(embedded, "drop", config_.embd_pdrop(), step, x);
  for (int64_t layer = 0; layer < config_.num_hidden_layers(); ++layer) {
    const std::string at = "h." + std::to_string(layer);
    const Matrix qkv = Linear(at + ".attn.c_attn", LayerNorm(at + ".ln_1", x), false);
    const Matrix mixed = Attention(Rows(qkv, 0, inner), Rows(qkv, inner, inner),
                                   Rows(qkv, 2 * inner, inner), at + ".attn", step);
    AddDropped(Linear(at + ".attn.c_proj", mixed, false), at + ".attn.add", config_.resid_pdrop(),
               step, x);
    Matrix wide = Linear(at + ".mlp.c_fc", LayerNorm(at + ".ln_2", x), false);
    for (std::vector<double>& row : wide) {
      for (double& value : row) value = Gelu(value);
    }
    AddDropped(Linear(at + ".mlp.c_proj", wide, false), at + ".mlp.add", config_.resid_pdrop(),
               step, x);
  }
  return Head(config_.tie_word_embeddings() ? "wte.weight" : "lm_head.weight",
              LayerNorm("ln_f", x));
}

Matrix PlainModel::Llama(std::span<const int32_t> tokens) const {
  const size_t width = Size(config_.hidden_size());
  Matrix x;
  for (const int32_t token : tokens) {
    const auto row = weights_.at("model.embed_tokens.weight").begin() +
                     static_cast<std::ptrdiff_t>(Size(token) * width);
    x.emplace_back(row, row + static_cast<std::ptrdiff_t>(width));
  }
  for (int64_t layer = 0; layer < config_.num_hidden_layers(); ++layer) {
    const std::string at = "model.layers." + std::to_string(layer);
    const Matrix a = RmsNorm(at + ".input_layernorm", x);
    const Matrix mixed = Attention(Rotated(Linear(at + ".self_attn.q_proj", a, true)),
                                   Rotated(Linear(at + ".self_attn.k_proj", a, true)),
                                   Linear(at + ".self_attn.v_proj", a, true), "", nullptr);
    AddDropped(Linear(at + ".self_attn.o_proj", mixed, true), "", 0, nullptr, x);
    const Matrix b = RmsNorm(at + ".post_attention_layernorm", x);
    Matrix gate = Linear(at + ".mlp.gate_proj", b, true);
    const Matrix up = Linear(at + ".mlp.up_proj", b, true);
    for (size_t t = 0; t < gate.size(); ++t) {
      for (size_t i = 0; i < gate[t].size(); ++i) {
        gate[t][i] *= up[t][i] / (1 + std::exp(-gate[t][i]));
      }
    }
    AddDropped(Linear(at + ".mlp.down_proj", gate, true), "", 0, nullptr, x);
  }
  return Head(config_.tie_word_embeddings() ? "model.embed_tokens.weight" : "lm_head.weight",
              RmsNorm("model.norm", x));
}

}  // namespace trireme::engine
