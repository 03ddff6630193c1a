// Token embedding over this rank's rows of the vocabulary, and learned positions.
#include <algorithm>

#include "runtime/kernels/ref/reference_kernels.h"
#include "runtime/kernels/ref/storage.h"

namespace trireme::kernels::ref {
namespace {

using graph::OpCall;
using graph::OpSpec;
using tensor::BFloat16;

template <typename T>
void EmbeddingForward(const OpSpec& spec, const OpCall& call) {
  const int32_t* tokens = call.In<int32_t>(graph::kTokens);
  const T* w = call.In<T>(graph::kW);
  T* y = call.Out<T>(graph::kY);
  for (int64_t r = 0; r < spec.rows; ++r) {
    const int64_t local = tokens[r] - spec.vocab_begin;
    T* out = y + r * spec.y_ld;
    if (local < 0 || local >= spec.vocab_rows) {
      std::fill_n(out, spec.cols, T{});
    } else {
      std::copy_n(w + local * spec.cols, spec.cols, out);
    }
  }
}

template <typename T>
void EmbeddingWeightGrad(const OpSpec& spec, const OpCall& call) {
  const int32_t* tokens = call.In<int32_t>(graph::kTokens);
  const T* dy = call.In<T>(graph::kDY);
  auto* dw = call.Out<Accumulator<T>>(graph::kDW);
  if (!call.accumulate) std::fill_n(dw, spec.vocab_rows * spec.cols, Accumulator<T>{0});
  for (int64_t r = 0; r < spec.rows; ++r) {
    const int64_t local = tokens[r] - spec.vocab_begin;
    if (local < 0 || local >= spec.vocab_rows) continue;
    for (int64_t c = 0; c < spec.cols; ++c) {
      dw[local * spec.cols + c] += static_cast<Accumulator<T>>(dy[r * spec.y_ld + c]);
    }
  }
}

template <typename T>
void PositionForward(const OpSpec& spec, const OpCall& call) {
  const T* x = call.In<T>(graph::kX);
  const T* w = call.In<T>(graph::kW);
  T* y = call.Out<T>(graph::kY);
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* position = w + (spec.row_begin + r) % spec.tokens * spec.cols;
    for (int64_t c = 0; c < spec.cols; ++c) {
      y[r * spec.y_ld + c] = Narrow<T>(Wide(x[r * spec.x_ld + c]) + Wide(position[c]));
    }
  }
}

template <typename T>
void PositionWeightGrad(const OpSpec& spec, const OpCall& call) {
  const T* dy = call.In<T>(graph::kDY);
  auto* dw = call.Out<Accumulator<T>>(graph::kDW);
  if (!call.accumulate) std::fill_n(dw, spec.weight_rows * spec.cols, Accumulator<T>{0});
  for (int64_t r = 0; r < spec.rows; ++r) {
    auto* position = dw + (spec.row_begin + r) % spec.tokens * spec.cols;
    for (int64_t c = 0; c < spec.cols; ++c) {
      position[c] += static_cast<Accumulator<T>>(dy[r * spec.y_ld + c]);
    }
  }
}

}  // namespace

void RegisterEmbeddings(KernelRegistry& registry) {
  using graph::OpKind;
  using graph::Phase;
  RegisterFunctions(
      registry, OpKind::kEmbedding, Phase::kForward,
      {EmbeddingForward<double>, EmbeddingForward<float>, EmbeddingForward<BFloat16>});
  RegisterFunctions(
      registry, OpKind::kEmbedding, Phase::kWeightGrad,
      {EmbeddingWeightGrad<double>, EmbeddingWeightGrad<float>, EmbeddingWeightGrad<BFloat16>});
  RegisterFunctions(registry, OpKind::kPositionEmbedding, Phase::kForward,
                    {PositionForward<double>, PositionForward<float>, PositionForward<BFloat16>});
  RegisterFunctions(
      registry, OpKind::kPositionEmbedding, Phase::kWeightGrad,
      {PositionWeightGrad<double>, PositionWeightGrad<float>, PositionWeightGrad<BFloat16>});
}

}  // namespace trireme::kernels::ref
