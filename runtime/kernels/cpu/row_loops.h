// Vectorised loops over ranges of rows or columns, f32, one thread each; the kernels cut their work
// into such ranges. The instruction set is chosen at run time. All matrices are row-major; *_ld
// count elements between rows.
#pragma once

#include <cstddef>
#include <cstdint>

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

// factors[i] = 0 or keep_scale for element begin + i of the stream.
void FillDropoutFactors(const DropoutStream& stream, uint64_t begin, int64_t count, float* factors);

struct NormArgs {
  const float* x = nullptr;
  const float* w = nullptr;  // [cols]
  const float* b = nullptr;  // [cols] or null
  const float* dy = nullptr;
  const float* base = nullptr;  // null: nothing is added to dx
  float* y = nullptr;
  float* dx = nullptr;
  float* stats = nullptr;  // [rows][2]: mean, rstd (LayerNorm); [rows]: rstd (RmsNorm)
  float* dw = nullptr;
  float* db = nullptr;  // or null
  int64_t rows = 0, cols = 0, x_ld = 0, y_ld = 0;
  float epsilon = 0;
  bool accumulate = false;
};
void LayerNormForward(const NormArgs& args, Range rows);
void LayerNormInputGrad(const NormArgs& args, Range rows);
void RmsNormForward(const NormArgs& args, Range rows);
void RmsNormInputGrad(const NormArgs& args, Range rows);
// dw, db of columns `cols`: rows are added in blocks of 64 in order, whatever the cut of the
// columns.
void LayerNormWeightGrad(const NormArgs& args, Range cols);
void RmsNormWeightGrad(const NormArgs& args, Range cols);

struct ActivationArgs {
  const float* x = nullptr;
  const float* dy = nullptr;
  const float* base = nullptr;  // null: nothing is added to dx (Gelu)
  float* y = nullptr;
  float* dx = nullptr;
  int64_t cols = 0, x_ld = 0, y_ld = 0;
};
void GeluForward(const ActivationArgs& args, Range rows);
void GeluInputGrad(const ActivationArgs& args, Range rows);
void SwiGluForward(const ActivationArgs& args, Range rows);
void SwiGluInputGrad(const ActivationArgs& args, Range rows);

// y = [residual +] [dropout of] (x [+ b]); dx = dropout of dy; db = column sums of that.
struct ResidualArgs {
  const float* x = nullptr;         // null: 0
  const float* b = nullptr;         // [cols] or null
  const float* residual = nullptr;  // leading dimension y_ld; or null
  float* y = nullptr;
  const DropoutStream* dropout = nullptr;  // null: none
  uint64_t first_element = 0;  // of row 0 in the dropout stream; row r is r * cols later
  int64_t rows = 0, cols = 0, x_ld = 0, y_ld = 0;
  bool accumulate = false;  // of SumColumns
};
void AddRows(const ResidualArgs& args, Range rows);
// y[c] (one row) = or += sum over rows of dropout(x)[r][c], rows in blocks of 64 in order.
void SumColumns(const ResidualArgs& args, Range cols);

// to[i] += from[i].
void AddInto(const float* from, float* to, int64_t count);

// Rotates the pairs (i, i + head_dim / 2) of `heads` adjacent heads of one row by the angles of
// cosine and sine [head_dim / 2]; direction -1 rotates back.
struct RotateArgs {
  float* row = nullptr;
  const float* cosine = nullptr;
  const float* sine = nullptr;
  int64_t heads = 0, head_dim = 0;
  float direction = 1;
};
void RotateHeads(const RotateArgs& args);

// Folds `count` logits into a running (max, sum exp(logit - max)).
void FoldSoftmax(const float* logits, int64_t count, float* max, float* sum);
// logits[i] = exp(logits[i] - lse) * scale.
void SoftmaxInPlace(float* logits, int64_t count, float lse, float scale);

}  // namespace trireme::kernels::cpu
