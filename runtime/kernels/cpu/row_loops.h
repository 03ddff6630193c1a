// Vectorised loops over ranges of rows or columns, one thread each; the kernels cut their work into
// such ranges. T is what activations and weights are stored in, float or tensor::BFloat16; all
// arithmetic is f32, rounded once when stored. All matrices are row-major; *_ld count elements
// between rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/tensor/bf16.h"

namespace trireme::kernels::cpu {

// Rows (or columns) begin .. end - 1.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// One dropout site at one step (runtime/base/philox.h), folded for the vector loops.
struct DropoutStream {
  uint64_t key = 0;
  uint64_t step = 0;
  uint32_t threshold = 0;
  float keep_scale = 1;  // 1 / (1 - p)
};

template <typename T>
struct NormArgs {
  const T* x = nullptr;
  const T* w = nullptr;  // [cols]
  const T* b = nullptr;  // [cols] or null
  const T* dy = nullptr;
  const T* base = nullptr;  // null: nothing is added to dx
  T* y = nullptr;           // of an input-grad: or null
  T* dx = nullptr;
  float* stats = nullptr;  // [rows][2]: mean, rstd (LayerNorm); [rows]: rstd (RmsNorm)
  float* dw = nullptr;
  float* db = nullptr;  // or null
  int64_t rows = 0, cols = 0, x_ld = 0, y_ld = 0;
  float epsilon = 0;
  bool accumulate = false;
};

// The weight gradients are those of a range of columns: rows are added in blocks of 64 in order,
// whatever the cut of the columns.
template <typename T>
struct NormLoops {
  using Loop = void (*)(const NormArgs<T>& args, Range range);
  Loop layer_forward, layer_input_grad, layer_weight_grad;
  Loop rms_forward, rms_input_grad, rms_weight_grad;
};

template <typename T>
struct ActivationArgs {
  const T* x = nullptr;
  const T* dy = nullptr;
  const T* base = nullptr;  // null: nothing is added to dx (Gelu)
  T* y = nullptr;           // of an input-grad: or null
  T* dx = nullptr;
  int64_t cols = 0, x_ld = 0, y_ld = 0;
};

// y = [residual +] [dropout of] (x [+ b]); dx = dropout of dy.
template <typename T>
struct ResidualArgs {
  const T* x = nullptr;         // null: 0
  const T* b = nullptr;         // [cols] or null
  const T* residual = nullptr;  // leading dimension y_ld; or null
  T* y = nullptr;
  const DropoutStream* dropout = nullptr;  // null: none
  uint64_t first_element = 0;  // of row 0 in the dropout stream; row r is r * cols later
  int64_t cols = 0, x_ld = 0, y_ld = 0;
};

// sum[c] = or += sum over rows of dropout(x)[r][c], rows in blocks of 64 in order.
template <typename T>
struct ColumnSumArgs {
  const T* x = nullptr;
  float* sum = nullptr;
  const DropoutStream* dropout = nullptr;  // as in ResidualArgs
  uint64_t first_element = 0;
  int64_t rows = 0, cols = 0, x_ld = 0;
  bool accumulate = false;
};

// Rotates the pairs (i, i + head_dim / 2) of `heads` adjacent heads of one row by the angles of
// cosine and sine [head_dim / 2]; direction -1 rotates back.
template <typename T>
struct RotateArgs {
  T* row = nullptr;
  const float* cosine = nullptr;
  const float* sine = nullptr;
  int64_t heads = 0, head_dim = 0;
  float direction = 1;
};

struct SoftmaxArgs {
  float lse = 0, scale = 1;
  int64_t target = -1;  // outside of the row: none
  int64_t next = 0;     // elements from this row to the one that follows
};

template <typename T>
struct RowLoops {
  using Activation = void (*)(const ActivationArgs<T>& args, Range rows);
  Activation gelu_forward, gelu_input_grad, swiglu_forward, swiglu_input_grad;
  void (*add_rows)(const ResidualArgs<T>& args, Range rows);
  void (*sum_columns)(const ColumnSumArgs<T>& args, Range cols);
  void (*rotate_heads)(const RotateArgs<T>& args);
  // to[i] += from[i].
  void (*add_into)(const T* from, float* to, int64_t count);
  // Folds `count` logits into a running (max, sum exp(logit - max)).
  void (*fold_softmax)(const T* logits, int64_t count, float* max, float* sum);
  // logits[i] = (exp(logits[i] - lse) - (i == target ? 1 : 0)) * scale.
  void (*softmax_in_place)(T* logits, int64_t count, const SoftmaxArgs& args);
  void (*widen)(const T* from, float* to, int64_t count);
  void (*narrow)(const float* from, T* to, int64_t count);
  // Copies past the caches, for what is read much later; other threads see it after
  // hwy::FlushStream.
  void (*stream)(const T* from, T* to, int64_t count);
};

// Of the best instruction set of this machine. T: float or tensor::BFloat16.
template <typename T>
const NormLoops<T>& NormLoopsOf();
template <typename T>
const RowLoops<T>& RowLoopsOf();

}  // namespace trireme::kernels::cpu
