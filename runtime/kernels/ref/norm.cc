// LayerNorm and RmsNorm. With h = (x - mean) * rstd and g = dy * w, the input gradient is
// rstd * (g - mean(g) - h * mean(g h)); RmsNorm has mean = 0 and no mean(g).
#include <cmath>

#include "runtime/kernels/ref/column_sums.h"
#include "runtime/kernels/ref/reference_kernels.h"
#include "runtime/kernels/ref/storage.h"

namespace trireme::kernels::ref {
namespace {

using graph::OpCall;
using graph::OpKind;
using graph::OpSpec;
using tensor::BFloat16;

struct RowStats {
  double mean = 0;
  double rstd = 0;
};

template <OpKind kKind, typename T>
RowStats LoadStats(const T* stats, int64_t row) {
  if constexpr (kKind == OpKind::kRmsNorm) {
    return {0, static_cast<double>(stats[row])};
  } else {
    return {static_cast<double>(stats[2 * row]), static_cast<double>(stats[2 * row + 1])};
  }
}

template <OpKind kKind, typename T>
RowStats MeasureRow(const OpSpec& spec, const T* x) {
  RowStats stats;
  if constexpr (kKind == OpKind::kLayerNorm) {
    for (int64_t c = 0; c < spec.cols; ++c) stats.mean += Wide(x[c]);
    stats.mean /= static_cast<double>(spec.cols);
  }
  double squares = 0;
  for (int64_t c = 0; c < spec.cols; ++c) {
    const double centred = Wide(x[c]) - stats.mean;
    squares += centred * centred;
  }
  stats.rstd = 1.0 / std::sqrt(squares / static_cast<double>(spec.cols) + spec.epsilon);
  return stats;
}

template <typename T>
T Normal(const RowStats& stats, T x, T w, const T* b) {
  const double value = (Wide(x) - stats.mean) * stats.rstd * Wide(w);
  return Narrow<T>(b == nullptr ? value : value + Wide(*b));
}

template <OpKind kKind, typename T>
void NormForward(const OpSpec& spec, const OpCall& call) {
  const T* w = call.In<T>(graph::kW);
  const T* b = call.In<T>(graph::kB);
  auto* saved = call.Out<Accumulator<T>>(graph::kStats);
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* x = call.In<T>(graph::kX) + r * spec.x_ld;
    T* y = call.Out<T>(graph::kY) + r * spec.y_ld;
    RowStats stats = MeasureRow<kKind>(spec, x);
    if constexpr (kKind == OpKind::kLayerNorm) {
      saved[2 * r] = static_cast<Accumulator<T>>(stats.mean);
      saved[2 * r + 1] = static_cast<Accumulator<T>>(stats.rstd);
    } else {
      saved[r] = static_cast<Accumulator<T>>(stats.rstd);
    }
    stats = LoadStats<kKind>(saved, r);  // what backward has: it may have to restore y
    for (int64_t c = 0; c < spec.cols; ++c) {
      y[c] = Normal(stats, x[c], w[c], b == nullptr ? nullptr : b + c);
    }
  }
}

template <OpKind kKind, typename T>
void NormInputGrad(const OpSpec& spec, const OpCall& call) {
  const T* w = call.In<T>(graph::kW);
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* x = call.In<T>(graph::kX) + r * spec.x_ld;
    const T* dy = call.In<T>(graph::kDY) + r * spec.y_ld;
    const T* base = call.In<T>(graph::kBase);
    if (base != nullptr) base += r * spec.x_ld;
    T* dx = call.Out<T>(graph::kDX) + r * spec.x_ld;
    T* y = call.Out<T>(graph::kY);
    if (y != nullptr) y += r * spec.y_ld;
    const T* b = call.In<T>(graph::kB);
    const RowStats stats = LoadStats<kKind>(call.In<Accumulator<T>>(graph::kStats), r);
    double mean_g = 0;
    double mean_gh = 0;
    for (int64_t c = 0; c < spec.cols; ++c) {
      const double g = Wide(dy[c]) * Wide(w[c]);
      if constexpr (kKind == OpKind::kLayerNorm) mean_g += g;
      mean_gh += g * (Wide(x[c]) - stats.mean) * stats.rstd;
    }
    mean_g /= static_cast<double>(spec.cols);
    mean_gh /= static_cast<double>(spec.cols);
    for (int64_t c = 0; c < spec.cols; ++c) {
      const double g = Wide(dy[c]) * Wide(w[c]);
      const double h = (Wide(x[c]) - stats.mean) * stats.rstd;
      const double gradient = stats.rstd * (g - mean_g - h * mean_gh);
      if (y != nullptr) y[c] = Normal(stats, x[c], w[c], b == nullptr ? nullptr : b + c);
      dx[c] = Narrow<T>(base == nullptr ? gradient : Wide(base[c]) + gradient);
    }
  }
}

template <OpKind kKind, typename T>
void NormWeightGrad(const OpSpec& spec, const OpCall& call) {
  const T* x = call.In<T>(graph::kX);
  const T* dy = call.In<T>(graph::kDY);
  const auto* saved = call.In<Accumulator<T>>(graph::kStats);
  SumColumns(spec.rows, spec.cols, call.accumulate, call.Out<Accumulator<T>>(graph::kDW),
             [&](int64_t r, int64_t c) {
               const RowStats stats = LoadStats<kKind>(saved, r);
               return Wide(dy[r * spec.y_ld + c]) * (Wide(x[r * spec.x_ld + c]) - stats.mean) *
                      stats.rstd;
             });
  if (call.operand[graph::kDB] == nullptr) return;
  SumColumns(spec.rows, spec.cols, call.accumulate, call.Out<Accumulator<T>>(graph::kDB),
             [&](int64_t r, int64_t c) { return Wide(dy[r * spec.y_ld + c]); });
}

template <OpKind kKind>
void RegisterNorm(KernelRegistry& registry) {
  using graph::Phase;
  RegisterFunctions(
      registry, kKind, Phase::kForward,
      {NormForward<kKind, double>, NormForward<kKind, float>, NormForward<kKind, BFloat16>});
  RegisterFunctions(
      registry, kKind, Phase::kInputGrad,
      {NormInputGrad<kKind, double>, NormInputGrad<kKind, float>, NormInputGrad<kKind, BFloat16>});
  RegisterFunctions(registry, kKind, Phase::kWeightGrad,
                    {NormWeightGrad<kKind, double>, NormWeightGrad<kKind, float>,
                     NormWeightGrad<kKind, BFloat16>});
}

}  // namespace

void RegisterNorms(KernelRegistry& registry) {
  RegisterNorm<OpKind::kLayerNorm>(registry);
  RegisterNorm<OpKind::kRmsNorm>(registry);
}

}  // namespace trireme::kernels::ref
