// GPT-2 and Llama once more, as plain loops over one sample in f64, by the papers' formulas and
// from Hugging Face's names: shares no line with the graph, the kernels, the engine or the
// generator of random numbers, so it can say what evaluation, generation and dropout must give.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/runtime/engine/layout_run.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::engine {

// A row of numbers for each token, or for each token of the vocabulary.
using Matrix = std::vector<std::vector<double>>;

// Philox4x32-10 by the paper (Salmon et al., SC'11): four numbers of `counter` under `key`.
std::vector<uint32_t> PlainPhilox(const std::vector<uint32_t>& counter,
                                  const std::vector<uint32_t>& key);
// Numbers of the stream of `site` (docs/glossary.md): FNV-1a of the name and the seed make the key,
// index and step the counter.
uint32_t PlainUniform32(uint64_t seed, const std::string& site, uint64_t step, uint64_t index);

// Whose dropout masks.
struct PlainStep {
  uint64_t seed = 0;
  uint64_t step = 0;
  int64_t sample = 0;  // of the global batch
};

class PlainModel {
 public:
  // `weights`: logical tensors by name; both must outlive the model.
  PlainModel(const v1::ModelConfig& config, const Tensors& weights)
      : config_(config), weights_(weights) {}

  // [T][V], positions from 0; `step`: with dropout.
  Matrix Logits(std::span<const int32_t> tokens, const PlainStep* step = nullptr) const;
  // Negative log-likelihoods of the targets that are not negative, and their number.
  struct Loss {
    double sum = 0;
    int64_t counted = 0;
  };
  Loss LossOf(std::span<const int32_t> tokens, std::span<const int32_t> targets,
              const PlainStep* step = nullptr) const;

 private:
  Matrix Gpt2(std::span<const int32_t> tokens, const PlainStep* step) const;
  Matrix Llama(std::span<const int32_t> tokens) const;
  // x W + b, with W as [in, out] or, `transposed`, as [out, in]; a bias that the model lacks is
  // none.
  Matrix Linear(const std::string& name, const Matrix& x, bool transposed) const;
  Matrix LayerNorm(const std::string& name, const Matrix& x) const;
  Matrix RmsNorm(const std::string& name, const Matrix& x) const;
  // `q` of all heads, `k` and `v` of all key/value heads, side by side.
  Matrix Attention(const Matrix& q, const Matrix& k, const Matrix& v, const std::string& site,
                   const PlainStep* step) const;
  Matrix Rotated(const Matrix& x) const;
  void AddDropped(const Matrix& y, const std::string& site, double p, const PlainStep* step,
                  Matrix& x) const;
  Matrix Head(const std::string& name, const Matrix& x) const;

  const v1::ModelConfig& config_;
  const Tensors& weights_;
};

}  // namespace trireme::engine
