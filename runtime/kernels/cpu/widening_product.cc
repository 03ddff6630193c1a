// Products of bf16 by way of f32: square blocks of A and B are widened, multiplied by oneDNN's
// sgemm and rounded once when all of a block of C has been summed. Each element is widened once for
// every block of the others, which is little beside its products.
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/kernels/cpu/product.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/threads.h"
#include "runtime/tensor/bf16.h"

namespace trireme::kernels::cpu {
namespace {
using tensor::BFloat16;
using tensor::DType;

constexpr int64_t kLargestBlock = 1024, kSmallestBlock = 32;

struct Block {
  Range rows, cols;
  int64_t Rows() const { return rows.end - rows.begin; }
  int64_t Cols() const { return cols.end - cols.begin; }
};

class WideningProduct : public Product {
 public:
  WideningProduct(const ProductShape& shape, int64_t block) : shape_(shape), block_(block) {}

  size_t ScratchBytes() const override {
    return 3 * static_cast<size_t>(block_ * block_) * sizeof(float);
  }

  void Run(const ProductOperands& o, std::span<std::byte> scratch) override {
    TRIREME_CHECK(scratch.size() >= ScratchBytes());
    const ProductShape& s = shape_;
    auto* a = reinterpret_cast<float*>(scratch.data());
    float* b = a + block_ * block_;
    float* c = b + block_ * block_;
    for (int64_t i = 0; i < s.m; i += block_) {
      for (int64_t j = 0; j < s.n; j += block_) {
        const Block to{{i, std::min(s.m, i + block_)}, {j, std::min(s.n, j + block_)}};
        StartBlock(o, to, c);
        for (int64_t k = 0; k < s.k; k += block_) {
          const Range inner{k, std::min(s.k, k + block_)};
          Widen(o.a, s.lda, s.transpose_a ? Block{inner, to.rows} : Block{to.rows, inner}, a);
          Widen(o.b, s.ldb, s.transpose_b ? Block{to.cols, inner} : Block{inner, to.cols}, b);
          MultiplyBlock(to, inner.end - inner.begin, a, b, c);
        }
        StoreBlock(o, to, c);
      }
    }
  }

 private:
  // Rows of a block of a stored matrix into rows block_ apart.
  void Widen(const void* matrix, int64_t ld, const Block& from, float* to) const {
    const auto* source = static_cast<const BFloat16*>(matrix) + from.cols.begin;
    ForRows(from.Rows(), from.Cols(), shape_.threads, [&](Range rows) {
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        RowLoopsOf<BFloat16>().widen(source + (from.rows.begin + r) * ld, to + r * block_,
                                     from.Cols());
      }
    });
  }

  // c = addend + bias.
  template <typename C>
  void StartFrom(const C* addend, const BFloat16* bias, const Block& to, float* c) const {
    const int64_t cols = to.Cols();
    ForRows(to.Rows(), cols, shape_.threads, [&](Range rows) {
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        float* row = c + r * block_;
        std::fill_n(row, cols, 0.0f);
        const int64_t at = (to.rows.begin + r) * shape_.ldc + to.cols.begin;
        if (addend != nullptr) RowLoopsOf<C>().add_into(addend + at, row, cols);
        if (bias != nullptr) RowLoopsOf<BFloat16>().add_into(bias + to.cols.begin, row, cols);
      }
    });
  }

  void StartBlock(const ProductOperands& o, const Block& to, float* c) const {
    const auto* bias = static_cast<const BFloat16*>(o.bias);
    if (shape_.c_dtype == DType::kBf16) {
      StartFrom(static_cast<const BFloat16*>(o.addend), bias, to, c);
    } else {
      StartFrom(static_cast<const float*>(o.addend), bias, to, c);
    }
  }

  void MultiplyBlock(const Block& to, int64_t inner, const float* a, const float* b,
                     float* c) const {
    const ThreadScope scope(shape_.threads);
    const dnnl_status_t status =
        dnnl_sgemm(shape_.transpose_a ? 'T' : 'N', shape_.transpose_b ? 'T' : 'N', to.Rows(),
                   to.Cols(), inner, 1.0f, a, block_, b, block_, 1.0f, c, block_);
    TRIREME_CHECK(status == dnnl_success);
  }

  template <typename C>
  void StoreTo(C* matrix, const Block& to, const float* c) const {
    ForRows(to.Rows(), to.Cols(), shape_.threads, [&](Range rows) {
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        RowLoopsOf<C>().narrow(
            c + r * block_, matrix + (to.rows.begin + r) * shape_.ldc + to.cols.begin, to.Cols());
      }
    });
  }

  void StoreBlock(const ProductOperands& o, const Block& to, const float* c) const {
    if (shape_.c_dtype == DType::kBf16) {
      StoreTo(static_cast<BFloat16*>(o.c), to, c);
    } else {
      StoreTo(static_cast<float*>(o.c), to, c);
    }
  }

  ProductShape shape_;
  int64_t block_;
};

}  // namespace

std::unique_ptr<Product> MakeWideningProduct(const ProductShape& shape,
                                             size_t scratch_limit_bytes) {
  TRIREME_CHECK(shape.dtype == DType::kBf16);
  const int64_t longest = std::max({shape.m, shape.n, shape.k});
  for (int64_t block = kLargestBlock; block >= kSmallestBlock; block /= 2) {
    if (block >= 2 * longest && block > kSmallestBlock) continue;  // half of it holds everything
    auto product = std::make_unique<WideningProduct>(shape, block);
    if (product->ScratchBytes() <= scratch_limit_bytes) return product;
  }
  return nullptr;
}

}  // namespace trireme::kernels::cpu
