// Operands to measure with: huge pages, faulted in, full of numbers in (-1, 1).
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/memory.h"

namespace trireme::benchmark {

// `dtype`: kF32 or kBf16; of bf16 a reader of f32 sees numbers in (-1, 1) too.
absl::StatusOr<tensor::HugeMemory> MapNumbers(size_t bytes, tensor::DType dtype, int threads);

}  // namespace trireme::benchmark
