// One element of a buffer whose dtype is known at run time only, for what looks at few of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/tensor/dtype.h"

namespace trireme::tensor {

// Element `index` of reals of `dtype`: f64, f32 or bf16.
double ElementAt(DType dtype, const std::byte* data, int64_t index);
// Stores `value`, rounded to the nearest.
void SetElement(DType dtype, std::byte* data, int64_t index, double value);

}  // namespace trireme::tensor
