// Element-wise sums and maxima of the collectives, vectorised, in a stated order of operands. bf16
// is combined in f32 and rounded to bf16 at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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
// f64, f32, bf16 or i32.
void Apply(const Combine& combine);

// Of two terms or more. The targets may be terms, from the same address; other overlaps are not
// allowed.
struct CombineAll {
  std::span<const std::byte* const> terms;
  std::span<std::byte* const> targets;
  int64_t count = 0;
  tensor::DType dtype = tensor::DType::kF32;
  ReduceOp op = ReduceOp::kSum;
};

// Every target's element i becomes ((terms[0][i] op terms[1][i]) op terms[2][i]) ..., in one pass
// over memory; bf16 is rounded once.
void ApplyAll(const CombineAll& all);

// to[i] = ((terms[0][i] + terms[1][i]) + terms[2][i]) ... in f32, of two terms or more that have
// to.size() bf16 values each.
void SumBf16(std::span<const std::span<const std::byte>> terms, std::span<float> to);
// As BFloat16 does: to the nearest, ties to even; a NaN stays one. `to` has room for two bytes a
// value.
void RoundToBf16(std::span<const float> from, std::byte* to);
void WidenBf16(const std::byte* from, std::span<float> to);

}  // namespace trireme::comm
