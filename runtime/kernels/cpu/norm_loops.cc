// Run-time choice of the instruction set for the loops of norm_loops.inc.
#include <cmath>

#include "runtime/kernels/cpu/row_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/norm_loops.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "runtime/kernels/cpu/norm_loops.inc"

namespace trireme::kernels::cpu {
namespace {
HWY_EXPORT(LayerNormForwardVec);
HWY_EXPORT(LayerNormInputGradVec);
HWY_EXPORT(LayerNormWeightGradVec);
HWY_EXPORT(RmsNormForwardVec);
HWY_EXPORT(RmsNormInputGradVec);
HWY_EXPORT(RmsNormWeightGradVec);
}  // namespace

void LayerNormForward(const NormArgs& args, Range rows) {
  HWY_DYNAMIC_DISPATCH(LayerNormForwardVec)(args, rows);
}
void LayerNormInputGrad(const NormArgs& args, Range rows) {
  HWY_DYNAMIC_DISPATCH(LayerNormInputGradVec)(args, rows);
}
void LayerNormWeightGrad(const NormArgs& args, Range cols) {
  HWY_DYNAMIC_DISPATCH(LayerNormWeightGradVec)(args, cols);
}
void RmsNormForward(const NormArgs& args, Range rows) {
  HWY_DYNAMIC_DISPATCH(RmsNormForwardVec)(args, rows);
}
void RmsNormInputGrad(const NormArgs& args, Range rows) {
  HWY_DYNAMIC_DISPATCH(RmsNormInputGradVec)(args, rows);
}
void RmsNormWeightGrad(const NormArgs& args, Range cols) {
  HWY_DYNAMIC_DISPATCH(RmsNormWeightGradVec)(args, cols);
}

}  // namespace trireme::kernels::cpu
