// The three products of a linear layer, which LmHeadLoss shares.
#pragma once

#include "runtime/graph/op_spec.h"
#include "runtime/kernels/ref/matrix_product.h"

namespace trireme::kernels::ref {

// W as [inner, cols] or, with `transposed`, as [cols, inner], whichever way it is stored.
template <typename T>
MatrixView<T> WeightView(const graph::OpSpec& spec, const T* w, bool transposed) {
  const bool in_out = spec.weight_layout == graph::WeightLayout::kInOut;
  return {w, in_out ? spec.cols : spec.inner, in_out == transposed};
}

// y [rows, cols] (+)= x W.
template <typename T>
void MultiplyByWeight(const graph::OpSpec& spec, const T* x, const T* w, Into into, T* y) {
  MultiplyMatrices<T>({spec.rows, spec.cols, spec.inner}, {x, spec.x_ld, false},
                      WeightView(spec, w, false), into, y, spec.y_ld);
}

// dx [rows, inner] (+)= dy W^T.
template <typename T>
void MultiplyByWeightTransposed(const graph::OpSpec& spec, const T* dy, const T* w, Into into,
                                T* dx) {
  MultiplyMatrices<T>({spec.rows, spec.inner, spec.cols}, {dy, spec.y_ld, false},
                      WeightView(spec, w, true), into, dx, spec.x_ld);
}

// dw (+)= x^T dy, stored as W is.
template <typename T>
void MultiplyForWeight(const graph::OpSpec& spec, const T* x, const T* dy, Into into, T* dw) {
  if (spec.weight_layout == graph::WeightLayout::kInOut) {
    MultiplyMatrices<T>({spec.inner, spec.cols, spec.rows}, {x, spec.x_ld, true},
                        {dy, spec.y_ld, false}, into, dw, spec.cols);
  } else {
    MultiplyMatrices<T>({spec.cols, spec.inner, spec.rows}, {dy, spec.y_ld, true},
                        {x, spec.x_ld, false}, into, dw, spec.inner);
  }
}

}  // namespace trireme::kernels::ref
