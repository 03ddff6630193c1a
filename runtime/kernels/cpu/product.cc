// Which way is faster in f32 (measured on Zen 5, GPT-2 124M shapes, 1,024 rows, two threads):
// oneDNN's sgemm holds 455-490 GFLOP/s everywhere but for a transposed B with a leading dimension
// of 3,072 (380); there its matmul primitive, which copies B into blocks, gives 480. Elsewhere the
// primitive falls to 390-430 on large leading dimensions. bf16 has our own tiles, else the
// primitive.
#include "runtime/kernels/cpu/product.h"

#include <algorithm>
#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#include "runtime/base/check.h"
#include "runtime/kernels/cpu/bf16_tiles.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/threads.h"
#include "runtime/tensor/bf16.h"

namespace trireme::kernels::cpu {
namespace {
using tensor::DType;

// C = addend + bias, to be added to; or 0.
template <typename T>
void FillC(const ProductShape& s, const ProductOperands& o) {
  if (o.bias == nullptr && o.addend == o.c) return;
  ResidualArgs<T> fill;
  fill.x = static_cast<const T*>(o.addend);
  fill.b = static_cast<const T*>(o.bias);
  fill.y = static_cast<T*>(o.c);
  fill.cols = s.n;
  fill.x_ld = fill.y_ld = s.ldc;
  ForRows(s.m, s.n, s.threads, [&](Range rows) { RowLoopsOf<T>().add_rows(fill, rows); });
}

class SgemmProduct : public Product {
 public:
  explicit SgemmProduct(const ProductShape& shape) : shape_(shape) {}

  void Run(const ProductOperands& o, std::span<std::byte>) override {
    const ProductShape& s = shape_;
    const bool add = o.bias != nullptr || o.addend != nullptr;
    if (add) FillC<float>(s, o);
    const ThreadScope scope(s.threads);
    const dnnl_status_t status =
        dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0f,
                   static_cast<const float*>(o.a), s.lda, static_cast<const float*>(o.b), s.ldb,
                   add ? 1.0f : 0.0f, static_cast<float*>(o.c), s.ldc);
    TRIREME_CHECK(status == dnnl_success);
  }

 private:
  ProductShape shape_;
};

// Nothing to multiply: C is what is added to it, or 0.
class EmptyProduct : public Product {
 public:
  explicit EmptyProduct(const ProductShape& shape) : shape_(shape) {}

  void Run(const ProductOperands& o, std::span<std::byte>) override {
    if (shape_.c_dtype == DType::kBf16) {
      FillC<tensor::BFloat16>(shape_, o);
    } else {
      TRIREME_CHECK(o.bias == nullptr || shape_.dtype == DType::kF32);
      FillC<float>(shape_, o);
    }
  }

 private:
  ProductShape shape_;
};

dnnl::engine& CpuEngine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

class PrimitiveProduct : public Product {
 public:
  // Null where oneDNN refuses the shape, or bf16 on this processor.
  static std::unique_ptr<Product> Make(const ProductShape& shape) {
    try {
      return std::unique_ptr<Product>(new PrimitiveProduct(shape));
    } catch (const dnnl::error&) {
      return nullptr;
    }
  }

  size_t ScratchBytes() const override { return scratch_bytes_; }

  void Run(const ProductOperands& o, std::span<std::byte> scratch) override {
    TRIREME_CHECK(scratch.size() >= scratch_bytes_);
    if (o.addend != nullptr && o.addend != o.c) CopyAddend(o);
    const ThreadScope scope(shape_.threads);
    a_.set_data_handle(const_cast<void*>(o.a));
    b_.set_data_handle(const_cast<void*>(o.b));
    c_.set_data_handle(o.c);
    scratch_.set_data_handle(scratch.data());
    std::array<dnnl_exec_arg_t, 5> arguments = {{{DNNL_ARG_SRC, a_.get()},
                                                 {DNNL_ARG_WEIGHTS, b_.get()},
                                                 {DNNL_ARG_DST, c_.get()},
                                                 {DNNL_ARG_SCRATCHPAD, scratch_.get()},
                                                 {DNNL_ARG_BIAS, bias_.get()}}};
    if (o.bias != nullptr) bias_.set_data_handle(const_cast<void*>(o.bias));
    const dnnl::matmul& primitive = primitives_[o.bias != nullptr][o.addend != nullptr];
    const dnnl_status_t status = dnnl_primitive_execute(
        primitive.get(), stream_.get(), o.bias != nullptr ? 5 : 4, arguments.data());
    TRIREME_CHECK(status == dnnl_success);
  }

 private:
  using Memory = dnnl::memory;

  static Memory::desc Matrix(int64_t rows, int64_t cols, int64_t ld, bool transposed, DType dtype) {
    return Memory::desc({rows, cols},
                        dtype == DType::kBf16 ? Memory::data_type::bf16 : Memory::data_type::f32,
                        transposed ? Memory::dims{1, ld} : Memory::dims{ld, 1});
  }

  explicit PrimitiveProduct(const ProductShape& s) : shape_(s), stream_(CpuEngine()) {
    const ThreadScope scope(s.threads);
    const auto a = Matrix(s.m, s.k, s.lda, s.transpose_a, s.dtype);
    const auto b = Matrix(s.k, s.n, s.ldb, s.transpose_b, s.dtype);
    const auto c = Matrix(s.m, s.n, s.ldc, false, s.c_dtype);
    const auto bias = Matrix(1, s.n, s.n, false, s.dtype);
    for (const bool add : {false, true}) {
      dnnl::primitive_attr attributes;
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      dnnl::post_ops sum;
      if (add) sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
      const dnnl::matmul::primitive_desc plain({a, b, c}, attributes, CpuEngine());
      const dnnl::matmul::primitive_desc with_bias({a, b, bias, c}, attributes, CpuEngine());
      for (const auto* description : {&plain, &with_bias}) {
        scratch_bytes_ = std::max(scratch_bytes_, description->scratchpad_desc().get_size());
      }
      primitives_[0][add] = dnnl::matmul(plain);
      primitives_[1][add] = dnnl::matmul(with_bias);
    }
    a_ = Memory(a, CpuEngine(), nullptr);
    b_ = Memory(b, CpuEngine(), nullptr);
    c_ = Memory(c, CpuEngine(), nullptr);
    bias_ = Memory(bias, CpuEngine(), nullptr);
    scratch_ = Memory(
        {{static_cast<int64_t>(scratch_bytes_)}, Memory::data_type::u8, Memory::format_tag::a},
        CpuEngine(), nullptr);
  }

  void CopyAddend(const ProductOperands& o) const {
    ProductOperands copy;
    copy.c = o.c;
    copy.addend = o.addend;
    if (shape_.c_dtype == DType::kBf16) {
      FillC<tensor::BFloat16>(shape_, copy);
    } else {
      FillC<float>(shape_, copy);
    }
  }

  ProductShape shape_;
  dnnl::stream stream_;
  dnnl::matmul primitives_[2][2];  // [with a bias][added to C]
  Memory a_, b_, c_, bias_, scratch_;
  size_t scratch_bytes_ = 0;
};

// The primitive copies B into blocks and gains only where there is work to pay for it.
constexpr int64_t kPrimitiveRows = 64;

}  // namespace

std::unique_ptr<Product> MakeProduct(const ProductShape& shape, size_t scratch_limit_bytes) {
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return std::make_unique<EmptyProduct>(shape);
  const bool bf16 = shape.dtype == DType::kBf16;
  if (auto tiles = MakeTileProduct(shape, scratch_limit_bytes, FastestTiles())) {
    return tiles;
  }
  if (bf16 || (shape.transpose_b && !shape.transpose_a && shape.m >= kPrimitiveRows)) {
    auto product = PrimitiveProduct::Make(shape);
    if (product != nullptr && product->ScratchBytes() <= scratch_limit_bytes) return product;
  }
  if (bf16) return MakeWideningProduct(shape, scratch_limit_bytes);
  return std::make_unique<SgemmProduct>(shape);
}

}  // namespace trireme::kernels::cpu
