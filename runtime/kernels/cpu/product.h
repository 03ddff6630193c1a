// One f32 matrix product of fixed shape by oneDNN: the primitive or the sgemm call, whichever is
// faster for the operands' layout (docs/performance.md, "products").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace trireme::kernels::cpu {

// C [m, n] = op(A) [m, k] * op(B) [k, n], row-major; a transposed A is stored [k, m], a transposed
// B [n, k].
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  int threads = 1;
};

struct ProductOperands {
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  const float* bias =
      nullptr;              // [n], added to every row of C; or null; not together with accumulate
  bool accumulate = false;  // C += instead of C =
};

class Product {
 public:
  virtual ~Product() = default;
  // Deterministic for a given shape and number of threads. `scratch` holds ScratchBytes(); oneDNN's
  // sgemm also packs into a few MiB of its own, returned before the call ends.
  virtual void Run(const ProductOperands& operands, std::span<std::byte> scratch) = 0;
  virtual size_t ScratchBytes() const { return 0; }
};

// Needs at most `scratch_limit_bytes` of scratch: where the primitive wants more, the sgemm call,
// which wants none, takes its place.
std::unique_ptr<Product> MakeProduct(const ProductShape& shape, size_t scratch_limit_bytes);

}  // namespace trireme::kernels::cpu
