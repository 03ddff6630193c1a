// Matrix products of the reference: OpenBLAS on one thread, plain loops where a call would cost
// more than the product or a dimension is empty. Safe from several threads at once; the same
// operands give the same bits.
#pragma once

#include <cstdint>

namespace trireme::kernels::ref {

// A matrix or its transpose, stored row by row, `ld` elements apart.
template <typename T>
struct MatrixView {
  const T* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;  // element (i, j) is data[j * ld + i] instead of data[i * ld + j]

  const T& At(int64_t i, int64_t j) const {
    return transposed ? data[j * ld + i] : data[i * ld + j];
  }
};

struct ProductSize {
  int64_t rows = 0;   // of a and c
  int64_t cols = 0;   // of b and c
  int64_t inner = 0;  // columns of a, rows of b
};

// What a product is added to: a matrix of its shape (which may be c), a row for each of its rows,
// or both; null where absent. C: double, float or BFloat16.
template <typename C>
struct Summands {
  const C* matrix = nullptr;
  int64_t ld = 0;
  const C* row = nullptr;
};

// Once per process, before the first product: OpenBLAS keeps to the calling thread.
void KeepProductsToOneThread();

// c [rows, cols], row-major with leading dimension c_ld: c = a b + summands, rounded to C once
// where T is BFloat16. With inner == 0, a b is zero. c must not overlap a or b. Each dimension
// below 2^31. (T, C): (double, double), (float, float), (BFloat16, BFloat16) or (BFloat16, float).
template <typename T, typename C>
void MultiplyMatrices(const ProductSize& size, const MatrixView<T>& a, const MatrixView<T>& b,
                      const Summands<C>& summands, C* c, int64_t c_ld);

}  // namespace trireme::kernels::ref
