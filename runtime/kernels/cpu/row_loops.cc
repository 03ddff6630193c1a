// Run-time choice of the instruction set for the loops of row_loops.inc.
#include "runtime/kernels/cpu/row_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/row_loops.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "runtime/kernels/cpu/row_loops.inc"

namespace trireme::kernels::cpu {
namespace {
HWY_EXPORT(FillDropoutFactorsVec);
HWY_EXPORT(GeluForwardVec);
HWY_EXPORT(GeluInputGradVec);
HWY_EXPORT(SwiGluForwardVec);
HWY_EXPORT(SwiGluInputGradVec);
HWY_EXPORT(AddRowsVec);
HWY_EXPORT(SumColumnsVec);
HWY_EXPORT(AddIntoVec);
HWY_EXPORT(RotateHeadsVec);
HWY_EXPORT(FoldSoftmaxVec);
HWY_EXPORT(SoftmaxInPlaceVec);
}  // namespace

void FillDropoutFactors(const DropoutStream& stream, uint64_t begin, int64_t count,
                        float* factors) {
  HWY_DYNAMIC_DISPATCH(FillDropoutFactorsVec)(stream, begin, count, factors);
}
void GeluForward(const ActivationArgs& args, Range rows) {
  HWY_DYNAMIC_DISPATCH(GeluForwardVec)(args, rows);
}
void GeluInputGrad(const ActivationArgs& args, Range rows) {
  HWY_DYNAMIC_DISPATCH(GeluInputGradVec)(args, rows);
}
void SwiGluForward(const ActivationArgs& args, Range rows) {
  HWY_DYNAMIC_DISPATCH(SwiGluForwardVec)(args, rows);
}
void SwiGluInputGrad(const ActivationArgs& args, Range rows) {
  HWY_DYNAMIC_DISPATCH(SwiGluInputGradVec)(args, rows);
}
void AddRows(const ResidualArgs& args, Range rows) { HWY_DYNAMIC_DISPATCH(AddRowsVec)(args, rows); }
void SumColumns(const ResidualArgs& args, Range cols) {
  HWY_DYNAMIC_DISPATCH(SumColumnsVec)(args, cols);
}
void AddInto(const float* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(AddIntoVec)(from, to, count);
}
void RotateHeads(const RotateArgs& args) { HWY_DYNAMIC_DISPATCH(RotateHeadsVec)(args); }
void FoldSoftmax(const float* logits, int64_t count, float* max, float* sum) {
  HWY_DYNAMIC_DISPATCH(FoldSoftmaxVec)(logits, count, max, sum);
}
void SoftmaxInPlace(float* logits, int64_t count, float lse, float scale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxInPlaceVec)(logits, count, lse, scale);
}

}  // namespace trireme::kernels::cpu
