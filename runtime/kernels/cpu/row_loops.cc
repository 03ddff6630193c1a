// Run-time choice of the instruction set for the loops of row_loops.inc.
#include "runtime/kernels/cpu/row_loops.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/row_loops.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "runtime/kernels/cpu/row_loops.inc"

namespace trireme::kernels::cpu {
namespace {
HWY_EXPORT(RowLoopsF32);
HWY_EXPORT(RowLoopsBf16);
}  // namespace

template <>
const RowLoops<float>& RowLoopsOf() {
  return HWY_DYNAMIC_DISPATCH(RowLoopsF32)();
}
template <>
const RowLoops<tensor::BFloat16>& RowLoopsOf() {
  return HWY_DYNAMIC_DISPATCH(RowLoopsBf16)();
}

}  // namespace trireme::kernels::cpu
