// Linear: bias, residual and base are put into the output first, and the product is added to them.
#include "runtime/kernels/ref/linear.h"

#include <algorithm>

#include "runtime/kernels/ref/column_sums.h"
#include "runtime/kernels/ref/reference_kernels.h"

namespace trireme::kernels::ref {
namespace {

using graph::OpCall;
using graph::OpSpec;

// y = residual + b, each if present; y may be the residual's memory. False if neither is.
template <typename T>
bool FillWithSummands(const OpSpec& spec, const T* residual, const T* b, T* y) {
  if (residual == nullptr && b == nullptr) return false;
  for (int64_t r = 0; r < spec.rows; ++r) {
    T* out = y + r * spec.y_ld;
    const T* summand = residual == nullptr ? nullptr : residual + r * spec.y_ld;
    for (int64_t c = 0; c < spec.cols; ++c) {
      const T bias = b == nullptr ? T{0} : b[c];
      out[c] = summand == nullptr ? bias : summand[c] + bias;
    }
  }
  return true;
}

template <typename T>
void LinearForward(const OpSpec& spec, const OpCall& call) {
  const T* residual = spec.fused_residual ? call.In<T>(graph::kResidual) : nullptr;
  T* y = call.Out<T>(graph::kY);
  const bool add = FillWithSummands(spec, residual, call.In<T>(graph::kB), y);
  MultiplyByWeight(spec, call.In<T>(graph::kX), call.In<T>(graph::kW),
                   add ? Into::kAdd : Into::kOverwrite, y);
}

template <typename T>
void LinearInputGrad(const OpSpec& spec, const OpCall& call) {
  const T* base = call.In<T>(graph::kBase);
  T* dx = call.Out<T>(graph::kDX);
  if (base != nullptr && base != dx) {
    for (int64_t r = 0; r < spec.rows; ++r) {
      std::copy_n(base + r * spec.x_ld, spec.inner, dx + r * spec.x_ld);
    }
  }
  MultiplyByWeightTransposed(spec, call.In<T>(graph::kDY), call.In<T>(graph::kW),
                             base == nullptr ? Into::kOverwrite : Into::kAdd, dx);
}

template <typename T>
void LinearWeightGrad(const OpSpec& spec, const OpCall& call) {
  const T* dy = call.In<T>(graph::kDY);
  MultiplyForWeight(spec, call.In<T>(graph::kX), dy,
                    call.accumulate ? Into::kAdd : Into::kOverwrite, call.Out<T>(graph::kDW));
  if (call.operand[graph::kDB] == nullptr) return;
  SumColumns(spec.rows, spec.cols, call.accumulate, call.Out<T>(graph::kDB),
             [&](int64_t r, int64_t c) { return static_cast<double>(dy[r * spec.y_ld + c]); });
}

}  // namespace

void RegisterLinear(KernelRegistry& registry) {
  using graph::OpKind;
  using graph::Phase;
  RegisterFunctions(registry, OpKind::kLinear, Phase::kForward, LinearForward<double>,
                    LinearForward<float>);
  RegisterFunctions(registry, OpKind::kLinear, Phase::kInputGrad, LinearInputGrad<double>,
                    LinearInputGrad<float>);
  RegisterFunctions(registry, OpKind::kLinear, Phase::kWeightGrad, LinearWeightGrad<double>,
                    LinearWeightGrad<float>);
}

}  // namespace trireme::kernels::ref
