// One matrix product of fixed shape, in f32 or from bf16: by the tiles of AMX, by oneDNN's
// primitive or by its gemm call, whichever is fastest for the operands (docs/performance.md,
// "products").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/tensor/dtype.h"

namespace trireme::kernels::cpu {

// C [m, n] = op(A) [m, k] * op(B) [k, n], row-major; a transposed A is stored [k, m], a transposed
// B [n, k].
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  int threads = 1;
  tensor::DType dtype = tensor::DType::kF32;    // of A, B and the bias: kF32 or kBf16
  tensor::DType c_dtype = tensor::DType::kF32;  // of C and the addend: kF32, or kBf16 as dtype
};

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;    // [n], added to every row of C; or null
  const void* addend = nullptr;  // [m, n] with C's leading dimension, added to C; may be c; or null
  // A is what it was in this product's last Run, whose scratch nothing else has written since.
  bool same_a = false;
};

class Product {
 public:
  virtual ~Product() = default;
  // Sums are made in f32 and rounded once. Deterministic for a given shape and number of threads.
  // `scratch` holds ScratchBytes(); oneDNN's sgemm also packs into a few MiB of its own, returned
  // before the call ends.
  virtual void Run(const ProductOperands& operands, std::span<std::byte> scratch) = 0;
  virtual size_t ScratchBytes() const { return 0; }
};

// Needs at most `scratch_limit_bytes` of scratch: where the primitive wants more, or the processor
// has no bf16 for it, another way takes its place, which in f32 wants none. Null where there is too
// little for any.
std::unique_ptr<Product> MakeProduct(const ProductShape& shape, size_t scratch_limit_bytes);

// Products of bf16 on a processor that cannot multiply it: blocks are widened to f32 in the
// scratch.
std::unique_ptr<Product> MakeWideningProduct(const ProductShape& shape, size_t scratch_limit_bytes);

// Products of bf16 by `tiles` (bf16_tiles.h), which may be null. Null without them, for small sides
// or sums too long for the cache, and where the scratch is too short.
struct Bf16Tiles;
std::unique_ptr<Product> MakeTileProduct(const ProductShape& shape, size_t scratch_limit_bytes,
                                         const Bf16Tiles* tiles);

}  // namespace trireme::kernels::cpu
