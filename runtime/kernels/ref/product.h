// Matrix product of the reference kernels: plain loops where a library call costs more than the work (the parity suites
// run thousands of tiny models), OpenBLAS on one thread above that. Internal to runtime/kernels/ref.
#pragma once

#include <cstdint>

namespace trireme::kernels {

// c[m, n] (row-major, leading dimension ldc) = beta * c + op(a) * op(b); op transposes where the flag says so; a and b
// are row-major before op. beta is 0 (c is not read) or 1.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool add = false;  // beta == 1
};

template <typename T>
void Product(const ProductShape& shape, const T* a, const T* b, T* c);

}  // namespace trireme::kernels
