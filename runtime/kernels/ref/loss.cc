// Language-model head and cross-entropy over this rank's vocabulary rows. A rank gives (max, sum of
// exp, target logit) per row; LossCombine merges the shares of all ranks into log-sum-exp.
#include <cmath>
#include <limits>

#include "runtime/kernels/ref/linear.h"
#include "runtime/kernels/ref/reference_kernels.h"

namespace trireme::kernels::ref {
namespace {

using graph::OpCall;
using graph::OpSpec;
using tensor::BFloat16;

// NaN wins, whichever it is.
double Larger(double so_far, double value) {
  return value <= so_far || std::isnan(so_far) ? so_far : value;
}

template <typename T>
void LmHeadLossForward(const OpSpec& spec, const OpCall& call) {
  T* y = call.Out<T>(graph::kY);
  MultiplyByWeight<T>(spec, call.In<T>(graph::kX), call.In<T>(graph::kW), {}, y);
  const int32_t* targets = call.In<int32_t>(graph::kTokens);
  auto* stats = call.Out<Accumulator<T>>(graph::kStats);
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* logits = y + r * spec.y_ld;
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t c = 0; c < spec.cols; ++c) largest = Larger(largest, Wide(logits[c]));
    double sum = 0;
    for (int64_t c = 0; c < spec.cols; ++c) sum += std::exp(Wide(logits[c]) - largest);
    const int64_t target = targets[r] - spec.vocab_begin;
    const bool local = targets[r] >= 0 && target >= 0 && target < spec.cols;
    stats[3 * r] = static_cast<Accumulator<T>>(largest);
    stats[3 * r + 1] = static_cast<Accumulator<T>>(sum);
    stats[3 * r + 2] = local ? static_cast<Accumulator<T>>(logits[target]) : 0;
  }
}

template <typename T>
void LmHeadLossInputGrad(const OpSpec& spec, const OpCall& call) {
  T* y = call.Out<T>(graph::kY);
  const auto* lse = call.In<Accumulator<T>>(graph::kBase);
  const int32_t* targets = call.In<int32_t>(graph::kTokens);
  for (int64_t r = 0; r < spec.rows; ++r) {
    T* logits = y + r * spec.y_ld;
    const int64_t target = targets[r] - spec.vocab_begin;
    for (int64_t c = 0; c < spec.cols; ++c) {
      if (targets[r] < 0) {
        logits[c] = T{};
        continue;
      }
      const double probability = std::exp(Wide(logits[c]) - lse[r]);
      logits[c] = Narrow<T>((probability - (c == target ? 1.0 : 0.0)) * call.loss_scale);
    }
  }
  MultiplyByWeightTransposed<T>(spec, y, call.In<T>(graph::kW), nullptr, call.Out<T>(graph::kDX));
}

template <typename T>
void LmHeadLossWeightGrad(const OpSpec& spec, const OpCall& call) {
  MultiplyForWeight(spec, call.In<T>(graph::kX), call.In<T>(graph::kY), call.accumulate,
                    call.Out<Accumulator<T>>(graph::kDW));
}

// T: what statistics are stored in.
template <typename T>
void LossCombine(const OpSpec& spec, const OpCall& call) {
  const T* shares = call.In<T>(graph::kX);
  const int32_t* targets = call.In<int32_t>(graph::kTokens);
  T* lse = call.Out<T>(graph::kY);
  double loss = 0;
  for (int64_t r = 0; r < spec.rows; ++r) {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t rank = 0; rank < spec.tensor_ranks; ++rank) {
      largest = Larger(largest, shares[(rank * spec.rows + r) * 3]);
    }
    double sum = 0;
    double target_logit = 0;
    for (int64_t rank = 0; rank < spec.tensor_ranks; ++rank) {
      const T* share = shares + (rank * spec.rows + r) * 3;
      // A rank without vocabulary has (-inf, 0, 0) and adds 0 * exp(-inf).
      sum += share[1] * std::exp(share[0] - largest);
      target_logit += share[2];
    }
    const double row_lse = largest + std::log(sum);
    lse[r] = static_cast<T>(row_lse);
    if (targets[r] >= 0) loss += row_lse - target_logit;
  }
  *call.Out<double>(graph::kDB) += loss;
}

}  // namespace

void RegisterLoss(KernelRegistry& registry) {
  using graph::OpKind;
  using graph::Phase;
  RegisterFunctions(
      registry, OpKind::kLmHeadLoss, Phase::kForward,
      {LmHeadLossForward<double>, LmHeadLossForward<float>, LmHeadLossForward<BFloat16>});
  RegisterFunctions(
      registry, OpKind::kLmHeadLoss, Phase::kInputGrad,
      {LmHeadLossInputGrad<double>, LmHeadLossInputGrad<float>, LmHeadLossInputGrad<BFloat16>});
  RegisterFunctions(
      registry, OpKind::kLmHeadLoss, Phase::kWeightGrad,
      {LmHeadLossWeightGrad<double>, LmHeadLossWeightGrad<float>, LmHeadLossWeightGrad<BFloat16>});
  RegisterFunctions(registry, OpKind::kLossCombine, Phase::kForward,
                    {LossCombine<double>, LossCombine<float>, LossCombine<float>});
}

}  // namespace trireme::kernels::ref
