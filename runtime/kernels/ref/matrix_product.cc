// OpenBLAS for all but tiny products. Debian's pthread build locks its buffers, so threads may call
// it at once.
#include "runtime/kernels/ref/matrix_product.h"

#include <cblas.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "runtime/base/check.h"
#include "runtime/kernels/ref/storage.h"

namespace trireme::kernels::ref {
namespace {

using tensor::BFloat16;

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

// c = summands; c may be their matrix. False if there are none.
template <typename C>
bool FillWithSummands(const ProductSize& size, const Summands<C>& summands, C* c, int64_t c_ld) {
  if (summands.matrix == nullptr && summands.row == nullptr) return false;
  if (summands.matrix == c && summands.row == nullptr) return true;
  for (int64_t i = 0; i < size.rows; ++i) {
    C* out = c + i * c_ld;
    const C* summand = summands.matrix == nullptr ? nullptr : summands.matrix + i * summands.ld;
    for (int64_t j = 0; j < size.cols; ++j) {
      const C row = summands.row == nullptr ? C{0} : summands.row[j];
      out[j] = summand == nullptr ? row : summand[j] + row;
    }
  }
  return true;
}

// Sums in f64, a block of columns at a time.
template <typename T, typename C>
void MultiplyPlainly(const ProductSize& size, const MatrixView<T>& a, const MatrixView<T>& b,
                     const Summands<C>& summands, C* c, int64_t c_ld) {
  constexpr int64_t kBlock = 64;
  for (int64_t i = 0; i < size.rows; ++i) {
    for (int64_t first = 0; first < size.cols; first += kBlock) {
      const int64_t count = std::min(kBlock, size.cols - first);
      double sum[kBlock] = {};
      for (int64_t j = 0; j < count; ++j) {
        if (summands.row != nullptr) sum[j] = Wide(summands.row[first + j]);
        if (summands.matrix != nullptr)
          sum[j] += Wide(summands.matrix[i * summands.ld + first + j]);
      }
      for (int64_t k = 0; k < size.inner; ++k) {
        const double factor = Wide(a.At(i, k));
        for (int64_t j = 0; j < count; ++j) sum[j] += factor * Wide(b.At(k, first + j));
      }
      for (int64_t j = 0; j < count; ++j) c[i * c_ld + first + j] = Narrow<C>(sum[j]);
    }
  }
}

}  // namespace

void KeepProductsToOneThread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

template <typename T, typename C>
void MultiplyMatrices(const ProductSize& size, const MatrixView<T>& a, const MatrixView<T>& b,
                      const Summands<C>& summands, C* c, int64_t c_ld) {
  if (size.rows == 0 || size.cols == 0) return;
  if constexpr (!std::is_same_v<T, BFloat16>) {
    const bool tiny = size.inner == 0 || size.rows * size.cols * size.inner < kTinyProduct;
    if (tiny) return MultiplyPlainly(size, a, b, summands, c, c_ld);
    constexpr int64_t kLimit = std::numeric_limits<blasint>::max();
    TRIREME_CHECK(size.rows <= kLimit && size.cols <= kLimit && size.inner <= kLimit);
    const bool add = FillWithSummands(size, summands, c, c_ld);
    Blas(size, a, b, add ? 1.0 : 0.0, c, c_ld);
  } else {
    MultiplyPlainly(size, a, b, summands, c, c_ld);
  }
}

template void MultiplyMatrices(const ProductSize&, const MatrixView<double>&,
                               const MatrixView<double>&, const Summands<double>&, double*,
                               int64_t);
template void MultiplyMatrices(const ProductSize&, const MatrixView<float>&,
                               const MatrixView<float>&, const Summands<float>&, float*, int64_t);
template void MultiplyMatrices(const ProductSize&, const MatrixView<BFloat16>&,
                               const MatrixView<BFloat16>&, const Summands<BFloat16>&, BFloat16*,
                               int64_t);
template void MultiplyMatrices(const ProductSize&, const MatrixView<BFloat16>&,
                               const MatrixView<BFloat16>&, const Summands<float>&, float*,
                               int64_t);

}  // namespace trireme::kernels::ref
