// y = residual + dropout(x + b). Rows may be a part of the micro-batch; the mask counts from its
// beginning.
#include "runtime/kernels/ref/column_sums.h"
#include "runtime/kernels/ref/dropout.h"
#include "runtime/kernels/ref/reference_kernels.h"
#include "runtime/kernels/ref/storage.h"

namespace trireme::kernels::ref {
namespace {

using graph::OpCall;
using graph::OpSpec;
using tensor::BFloat16;

// Index in the global batch of column 0 of local row `row`: samples follow one another, so rows are
// numbered throughout.
int64_t FirstElement(const OpSpec& spec, const OpCall& call, int64_t row) {
  return (call.first_sample * spec.tokens + spec.row_begin + row) * spec.cols;
}

template <typename T>
void ResidualAddForward(const OpSpec& spec, const OpCall& call) {
  Dropout dropout(spec, call);
  const T* b = call.In<T>(graph::kB);
  const T* residual = call.In<T>(graph::kResidual);
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* x = call.In<T>(graph::kX) + r * spec.x_ld;
    T* y = call.Out<T>(graph::kY) + r * spec.y_ld;
    const int64_t first = FirstElement(spec, call, r);
    for (int64_t c = 0; c < spec.cols; ++c) {
      double value = Wide(x[c]);
      if (b != nullptr) value += Wide(b[c]);
      value *= dropout.Factor(first + c);
      if (residual != nullptr) value += Wide(residual[r * spec.y_ld + c]);
      y[c] = Narrow<T>(value);
    }
  }
}

template <typename T>
void ResidualAddInputGrad(const OpSpec& spec, const OpCall& call) {
  Dropout dropout(spec, call);
  const T* base = call.In<T>(graph::kBase);
  for (int64_t r = 0; r < spec.rows; ++r) {
    const T* dy = call.In<T>(graph::kDY) + r * spec.y_ld;
    T* dx = call.Out<T>(graph::kDX) + r * spec.x_ld;
    const int64_t first = FirstElement(spec, call, r);
    for (int64_t c = 0; c < spec.cols; ++c) {
      double value = Wide(dy[c]) * dropout.Factor(first + c);
      if (base != nullptr) value += Wide(base[r * spec.x_ld + c]);
      dx[c] = Narrow<T>(value);
    }
  }
}

template <typename T>
void ResidualAddWeightGrad(const OpSpec& spec, const OpCall& call) {
  if (call.operand[graph::kDB] == nullptr) return;
  Dropout dropout(spec, call);
  const T* dy = call.In<T>(graph::kDY);
  SumColumns(spec.rows, spec.cols, call.accumulate, call.Out<Accumulator<T>>(graph::kDB),
             [&](int64_t r, int64_t c) {
               return Wide(dy[r * spec.y_ld + c]) * dropout.Factor(FirstElement(spec, call, r) + c);
             });
}

}  // namespace

void RegisterResidualAdd(KernelRegistry& registry) {
  using graph::OpKind;
  using graph::Phase;
  RegisterFunctions(
      registry, OpKind::kResidualAdd, Phase::kForward,
      {ResidualAddForward<double>, ResidualAddForward<float>, ResidualAddForward<BFloat16>});
  RegisterFunctions(
      registry, OpKind::kResidualAdd, Phase::kInputGrad,
      {ResidualAddInputGrad<double>, ResidualAddInputGrad<float>, ResidualAddInputGrad<BFloat16>});
  RegisterFunctions(registry, OpKind::kResidualAdd, Phase::kWeightGrad,
                    {ResidualAddWeightGrad<double>, ResidualAddWeightGrad<float>,
                     ResidualAddWeightGrad<BFloat16>});
}

}  // namespace trireme::kernels::ref
