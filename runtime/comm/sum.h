// Element-wise sums and maxima of the collectives, vectorised, in a stated order of operands.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/comm/communicator.h"
#include "runtime/tensor/dtype.h"

namespace trireme::comm {

// What one call combines: `count` elements of `dtype`. `to` may be `a` or `b`; other overlaps are
// not allowed.
struct Combine {
  void* to = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  int64_t count = 0;
  tensor::DType dtype = tensor::DType::kF32;
  ReduceOp op = ReduceOp::kSum;
};

// to[i] = a[i] op b[i]. A maximum with a NaN on either side is NaN, so that a vote cannot be lost.
// f64, f32 or i32.
void Apply(const Combine& combine);

// Applies and also writes the result to `copy` (no overlap): one pass instead of two.
void ApplyTwice(const Combine& combine, void* copy);

}  // namespace trireme::comm
