// How far a kernel may lie from the f64 reference on the same values, element by element.
#pragma once

#include <string>

#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {

// Half a unit of bf16: what is computed wider and rounded once when stored errs by so much of
// itself.
inline constexpr double kHalfUnitOfBf16 = 0x1p-8;

// Empty, or the worst of the elements that `actual` wrote and that lie farther from `exact` than
//   sum * the greatest element of the operand, for what is summed in f32,
//   + half a unit of bf16 * the element, where it is stored in bf16,
//   + what the operator has stored in bf16 on the way to it (bounds.cc).
std::string Beyond(const OpMemory& exact, const OpMemory& actual, double sum);

}  // namespace trireme::kernels
