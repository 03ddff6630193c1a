// OpenBLAS for all but tiny products. Debian's pthread build locks its buffers, so threads may call
// it at once.
#include "runtime/kernels/ref/matrix_product.h"

#include <cblas.h>

#include <limits>
#include <mutex>

#include "runtime/base/check.h"

namespace trireme::kernels::ref {
namespace {

// Below this many multiplications the plain loop is as fast as entering OpenBLAS.
constexpr int64_t kTinyProduct = 4096;

void Blas(const ProductSize& size, const MatrixView<double>& a, const MatrixView<double>& b,
          double beta, double* c, int64_t c_ld) {
  cblas_dgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, static_cast<blasint>(size.rows),
              static_cast<blasint>(size.cols), static_cast<blasint>(size.inner), 1.0, a.data,
              static_cast<blasint>(a.ld), b.data, static_cast<blasint>(b.ld), beta, c,
              static_cast<blasint>(c_ld));
}

void Blas(const ProductSize& size, const MatrixView<float>& a, const MatrixView<float>& b,
          double beta, float* c, int64_t c_ld) {
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, static_cast<blasint>(size.rows),
              static_cast<blasint>(size.cols), static_cast<blasint>(size.inner), 1.0f, a.data,
              static_cast<blasint>(a.ld), b.data, static_cast<blasint>(b.ld),
              static_cast<float>(beta), c, static_cast<blasint>(c_ld));
}

}  // namespace

void KeepProductsToOneThread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

template <typename T>
void MultiplyMatrices(const ProductSize& size, const MatrixView<T>& a, const MatrixView<T>& b,
                      Into into, T* c, int64_t c_ld) {
  if (size.rows == 0 || size.cols == 0) return;
  if (size.inner > 0 && size.rows * size.cols * size.inner >= kTinyProduct) {
    constexpr int64_t kLimit = std::numeric_limits<blasint>::max();
    TRIREME_CHECK(size.rows <= kLimit && size.cols <= kLimit && size.inner <= kLimit);
    Blas(size, a, b, into == Into::kAdd ? 1.0 : 0.0, c, c_ld);
    return;
  }
  for (int64_t i = 0; i < size.rows; ++i) {
    for (int64_t j = 0; j < size.cols; ++j) {
      double sum = into == Into::kAdd ? static_cast<double>(c[i * c_ld + j]) : 0.0;
      for (int64_t k = 0; k < size.inner; ++k) {
        sum += static_cast<double>(a.At(i, k)) * static_cast<double>(b.At(k, j));
      }
      c[i * c_ld + j] = static_cast<T>(sum);
    }
  }
}

template void MultiplyMatrices<double>(const ProductSize&, const MatrixView<double>&,
                                       const MatrixView<double>&, Into, double*, int64_t);
template void MultiplyMatrices<float>(const ProductSize&, const MatrixView<float>&,
                                      const MatrixView<float>&, Into, float*, int64_t);

}  // namespace trireme::kernels::ref
