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
HWY_EXPORT(NormLoopsF32);
HWY_EXPORT(NormLoopsBf16);
}  // namespace

template <>
const NormLoops<float>& NormLoopsOf() {
  return HWY_DYNAMIC_DISPATCH(NormLoopsF32)();
}
template <>
const NormLoops<tensor::BFloat16>& NormLoopsOf() {
  return HWY_DYNAMIC_DISPATCH(NormLoopsBf16)();
}

}  // namespace trireme::kernels::cpu
