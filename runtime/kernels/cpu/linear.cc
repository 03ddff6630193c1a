// Linear: the product with its epilogue (bias, residual stream, accumulation) in or just before it.
#include <cstring>

#include "runtime/base/check.h"
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

class Linear : public Kernel {
 public:
  Linear(const OpSpec& spec, const PrepareOptions& options)
      : spec_(spec),
        threads_(options.threads),
        product_(MakeProduct(ShapeOf(spec, options.threads), options.scratch_limit_bytes)) {}

  size_t ScratchBytes() const override { return product_->ScratchBytes(); }

  void Run(const OpCall& call) override {
    switch (spec_.phase) {
      case Phase::kForward:
        return Forward(call);
      case Phase::kInputGrad:
        return InputGrad(call);
      case Phase::kWeightGrad:
        return WeightGrad(call);
    }
  }

 private:
  void Forward(const OpCall& call) {
    ProductOperands o{call.In<float>(graph::kX), call.In<float>(graph::kW),
                      call.Out<float>(graph::kY), call.In<float>(graph::kB), false};
    if (spec_.fused_residual) {
      ResidualArgs fill;
      fill.x = call.In<float>(graph::kResidual);
      fill.b = o.bias;
      fill.y = o.c;
      fill.cols = spec_.cols;
      fill.x_ld = fill.y_ld = spec_.y_ld;
      ForRows(spec_.rows, spec_.cols, threads_, [&](Range rows) { AddRows(fill, rows); });
      o.bias = nullptr;
      o.accumulate = true;
    }
    product_->Run(o, call.scratch);
  }

  void InputGrad(const OpCall& call) {
    const float* base = call.In<float>(graph::kBase);
    ProductOperands o{call.In<float>(graph::kDY), call.In<float>(graph::kW),
                      call.Out<float>(graph::kDX), nullptr, base != nullptr};
    if (base != nullptr && base != o.c) {
      ResidualArgs copy;
      copy.x = base;
      copy.y = o.c;
      copy.cols = spec_.inner;
      copy.x_ld = copy.y_ld = spec_.x_ld;
      ForRows(spec_.rows, spec_.inner, threads_, [&](Range rows) { AddRows(copy, rows); });
    }
    product_->Run(o, call.scratch);
  }

  void WeightGrad(const OpCall& call) {
    const float* x = call.In<float>(graph::kX);
    const float* dy = call.In<float>(graph::kDY);
    const bool in_out = spec_.weight_layout == WeightLayout::kInOut;
    if (float* dw = call.Out<float>(graph::kDW)) {
      product_->Run({in_out ? x : dy, in_out ? dy : x, dw, nullptr, call.accumulate}, call.scratch);
    }
    if (float* db = call.Out<float>(graph::kDB)) {
      ResidualArgs sum;
      sum.x = dy;
      sum.y = db;
      sum.rows = spec_.rows;
      sum.cols = spec_.cols;
      sum.x_ld = spec_.y_ld;
      sum.accumulate = call.accumulate;
      ForColumns(spec_.rows, spec_.cols, threads_, [&](Range cols) { SumColumns(sum, cols); });
    }
  }

  OpSpec spec_;
  int threads_;
  std::unique_ptr<Product> product_;
};

}  // namespace

std::unique_ptr<Kernel> MakeLinear(const OpSpec& spec, const PrepareOptions& options) {
  return std::make_unique<Linear>(spec, options);
}

}  // namespace trireme::kernels::cpu
