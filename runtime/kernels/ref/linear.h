// The three products of a linear layer, which LmHeadLoss shares.
#pragma once

#include "runtime/graph/op_spec.h"
#include "runtime/kernels/ref/matrix_product.h"
#include "runtime/kernels/ref/storage.h"

namespace trireme::kernels::ref {

// W as [inner, cols] or, with `transposed`, as [cols, inner], whichever way it is stored.
template <typename T>
MatrixView<T> WeightView(const graph::OpSpec& spec, const T* w, bool transposed) {
  const bool in_out = spec.weight_layout == graph::WeightLayout::kInOut;
  return {w, in_out ? spec.cols : spec.inner, in_out == transposed};
}

// y [rows, cols] = x W + summands.
template <typename T>
void MultiplyByWeight(const graph::OpSpec& spec, const T* x, const T* w,
                      const Summands<T>& summands, T* y) {
  MultiplyMatrices<T, T>({spec.rows, spec.cols, spec.inner}, {x, spec.x_ld, false},
                         WeightView(spec, w, false), summands, y, spec.y_ld);
}

// dx [rows, inner] = dy W^T + base, which may be null.
template <typename T>
void MultiplyByWeightTransposed(const graph::OpSpec& spec, const T* dy, const T* w, const T* base,
                                T* dx) {
  MultiplyMatrices<T, T>({spec.rows, spec.inner, spec.cols}, {dy, spec.y_ld, false},
                         WeightView(spec, w, true), {base, spec.x_ld}, dx, spec.x_ld);
}

// dw (+)= x^T dy, stored as W is.
template <typename T>
void MultiplyForWeight(const graph::OpSpec& spec, const T* x, const T* dy, bool accumulate,
                       Accumulator<T>* dw) {
  const bool in_out = spec.weight_layout == graph::WeightLayout::kInOut;
  const int64_t w_ld = in_out ? spec.cols : spec.inner;
  const MatrixView<T> x_view = {x, spec.x_ld, in_out}, dy_view = {dy, spec.y_ld, !in_out};
  const Summands<Accumulator<T>> summands = {accumulate ? dw : nullptr, w_ld};
  if (in_out) {
    MultiplyMatrices<T>({spec.inner, spec.cols, spec.rows}, x_view, dy_view, summands, dw, w_ld);
  } else {
    MultiplyMatrices<T>({spec.cols, spec.inner, spec.rows}, dy_view, x_view, summands, dw, w_ld);
  }
}

}  // namespace trireme::kernels::ref
