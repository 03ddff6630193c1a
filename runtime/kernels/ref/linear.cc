// Linear: products that start from bias, residual, base or what was there before.
#include "runtime/kernels/ref/linear.h"

#include "runtime/kernels/ref/column_sums.h"
#include "runtime/kernels/ref/reference_kernels.h"

namespace trireme::kernels::ref {
namespace {

using graph::OpCall;
using graph::OpSpec;
using tensor::BFloat16;

template <typename T>
void LinearForward(const OpSpec& spec, const OpCall& call) {
  const T* residual = spec.fused_residual ? call.In<T>(graph::kResidual) : nullptr;
  MultiplyByWeight<T>(spec, call.In<T>(graph::kX), call.In<T>(graph::kW),
                      {residual, spec.y_ld, call.In<T>(graph::kB)}, call.Out<T>(graph::kY));
}

template <typename T>
void LinearInputGrad(const OpSpec& spec, const OpCall& call) {
  MultiplyByWeightTransposed(spec, call.In<T>(graph::kDY), call.In<T>(graph::kW),
                             call.In<T>(graph::kBase), call.Out<T>(graph::kDX));
}

template <typename T>
void LinearWeightGrad(const OpSpec& spec, const OpCall& call) {
  const T* dy = call.In<T>(graph::kDY);
  MultiplyForWeight(spec, call.In<T>(graph::kX), dy, call.accumulate,
                    call.Out<Accumulator<T>>(graph::kDW));
  if (call.operand[graph::kDB] == nullptr) return;
  SumColumns(spec.rows, spec.cols, call.accumulate, call.Out<Accumulator<T>>(graph::kDB),
             [&](int64_t r, int64_t c) { return Wide(dy[r * spec.y_ld + c]); });
}

}  // namespace

void RegisterLinear(KernelRegistry& registry) {
  using graph::OpKind;
  using graph::Phase;
  RegisterFunctions(registry, OpKind::kLinear, Phase::kForward,
                    {LinearForward<double>, LinearForward<float>, LinearForward<BFloat16>});
  RegisterFunctions(registry, OpKind::kLinear, Phase::kInputGrad,
                    {LinearInputGrad<double>, LinearInputGrad<float>, LinearInputGrad<BFloat16>});
  RegisterFunctions(
      registry, OpKind::kLinear, Phase::kWeightGrad,
      {LinearWeightGrad<double>, LinearWeightGrad<float>, LinearWeightGrad<BFloat16>});
}

}  // namespace trireme::kernels::ref
