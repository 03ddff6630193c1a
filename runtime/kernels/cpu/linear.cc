// Linear: the product with what it is added to (bias, residual stream, base, accumulation).
#include <memory>
#include <utility>

#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/product.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/threads.h"

namespace trireme::kernels::cpu {
namespace {
using graph::OpCall;
using graph::OpSpec;
using graph::Phase;
using graph::WeightLayout;

ProductShape ShapeOf(const OpSpec& s, int threads) {
  const bool in_out = s.weight_layout == WeightLayout::kInOut;
  const int64_t w_ld = in_out ? s.cols : s.inner;
  ProductShape p;
  p.threads = threads;
  p.dtype = s.dtype;
  p.c_dtype = s.phase == Phase::kWeightGrad ? tensor::AccumulatorOf(s.dtype) : s.dtype;
  switch (s.phase) {
    case Phase::kForward:  // y [rows, cols] = x * W
      p.m = s.rows, p.n = s.cols, p.k = s.inner;
      p.lda = s.x_ld, p.ldb = w_ld, p.ldc = s.y_ld;
      p.transpose_b = !in_out;
      break;
    case Phase::kInputGrad:  // dx [rows, inner] = dy * W^T
      p.m = s.rows, p.n = s.inner, p.k = s.cols;
      p.lda = s.y_ld, p.ldb = w_ld, p.ldc = s.x_ld;
      p.transpose_b = in_out;
      break;
    case Phase::kWeightGrad:  // dw = x^T dy or its transpose
      p.m = in_out ? s.inner : s.cols;
      p.n = in_out ? s.cols : s.inner;
      p.k = s.rows;
      p.lda = in_out ? s.x_ld : s.y_ld;
      p.ldb = in_out ? s.y_ld : s.x_ld;
      p.ldc = w_ld;
      p.transpose_a = true;
      break;
  }
  return p;
}

template <typename T>
class Linear : public Kernel {
 public:
  // Null where the scratch is too short for any product.
  static std::unique_ptr<Kernel> Make(const OpSpec& spec, const PrepareOptions& options) {
    auto product = MakeProduct(ShapeOf(spec, options.threads), options.scratch_limit_bytes);
    if (product == nullptr) return nullptr;
    return std::unique_ptr<Kernel>(new Linear(spec, options.threads, std::move(product)));
  }

  size_t ScratchBytes() const override { return product_->ScratchBytes(); }

  void Run(const OpCall& call) override {
    const auto& operand = call.operand;
    switch (spec_.phase) {
      case Phase::kForward:
        return product_->Run({.a = operand[graph::kX],
                              .b = operand[graph::kW],
                              .c = operand[graph::kY],
                              .bias = operand[graph::kB],
                              .addend = spec_.fused_residual ? operand[graph::kResidual] : nullptr},
                             call.scratch);
      case Phase::kInputGrad:
        return product_->Run({.a = operand[graph::kDY],
                              .b = operand[graph::kW],
                              .c = operand[graph::kDX],
                              .bias = nullptr,
                              .addend = operand[graph::kBase]},
                             call.scratch);
      case Phase::kWeightGrad:
        return WeightGrad(call);
    }
  }

 private:
  Linear(const OpSpec& spec, int threads, std::unique_ptr<Product> product)
      : spec_(spec), threads_(threads), product_(std::move(product)) {}

  void WeightGrad(const OpCall& call) {
    const T* x = call.In<T>(graph::kX);
    const T* dy = call.In<T>(graph::kDY);
    const bool in_out = spec_.weight_layout == WeightLayout::kInOut;
    if (float* dw = call.Out<float>(graph::kDW)) {
      product_->Run({.a = in_out ? x : dy,
                     .b = in_out ? dy : x,
                     .c = dw,
                     .bias = nullptr,
                     .addend = call.accumulate ? dw : nullptr},
                    call.scratch);
    }
    if (float* db = call.Out<float>(graph::kDB)) {
      ColumnSumArgs<T> sum;
      sum.x = dy;
      sum.sum = db;
      sum.rows = spec_.rows;
      sum.cols = spec_.cols;
      sum.x_ld = spec_.y_ld;
      sum.accumulate = call.accumulate;
      ForColumns(spec_.rows, spec_.cols, threads_,
                 [&](Range cols) { RowLoopsOf<T>().sum_columns(sum, cols); });
    }
  }

  OpSpec spec_;
  int threads_;
  std::unique_ptr<Product> product_;
};

}  // namespace

template <typename T>
std::unique_ptr<Kernel> MakeLinear(const OpSpec& spec, const PrepareOptions& options) {
  return Linear<T>::Make(spec, options);
}

template std::unique_ptr<Kernel> MakeLinear<float>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeLinear<tensor::BFloat16>(const OpSpec&, const PrepareOptions&);

}  // namespace trireme::kernels::cpu
