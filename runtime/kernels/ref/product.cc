#include "runtime/kernels/ref/product.h"

#include <cblas.h>

#include <mutex>

namespace trireme::kernels {

namespace {

constexpr int64_t kSmallWork = 16 * 1024;  // multiply-adds below which plain loops win

void Gemm(const ProductShape& s, const double* a, const double* b, double* c) {
  cblas_dgemm(CblasRowMajor, s.transpose_a ? CblasTrans : CblasNoTrans,
              s.transpose_b ? CblasTrans : CblasNoTrans, static_cast<int>(s.m), static_cast<int>(s.n),
              static_cast<int>(s.k), 1.0, a, static_cast<int>(s.lda), b, static_cast<int>(s.ldb),
              s.add ? 1.0 : 0.0, c, static_cast<int>(s.ldc));
}

void Gemm(const ProductShape& s, const float* a, const float* b, float* c) {
  cblas_sgemm(CblasRowMajor, s.transpose_a ? CblasTrans : CblasNoTrans,
              s.transpose_b ? CblasTrans : CblasNoTrans, static_cast<int>(s.m), static_cast<int>(s.n),
              static_cast<int>(s.k), 1.0F, a, static_cast<int>(s.lda), b, static_cast<int>(s.ldb),
              s.add ? 1.0F : 0.0F, c, static_cast<int>(s.ldc));
}

}  // namespace

template <typename T>
void Product(const ProductShape& s, const T* a, const T* b, T* c) {
  if (s.m == 0 || s.n == 0) return;
  if (s.k > 0 && s.m * s.n * s.k > kSmallWork) {
    // Ranks are threads of one process here; each brings one core.
    static std::once_flag once;
    std::call_once(once, [] { openblas_set_num_threads(1); });
    Gemm(s, a, b, c);
    return;
  }
  const int64_t a_row = s.transpose_a ? 1 : s.lda, a_step = s.transpose_a ? s.lda : 1;
  const int64_t b_column = s.transpose_b ? s.ldb : 1, b_step = s.transpose_b ? 1 : s.ldb;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = s.add ? static_cast<double>(c[i * s.ldc + j]) : 0;
      for (int64_t k = 0; k < s.k; ++k) {
        sum += static_cast<double>(a[i * a_row + k * a_step]) * b[k * b_step + j * b_column];
      }
      c[i * s.ldc + j] = static_cast<T>(sum);
    }
  }
}

template void Product<float>(const ProductShape&, const float*, const float*, float*);
template void Product<double>(const ProductShape&, const double*, const double*, double*);

}  // namespace trireme::kernels
