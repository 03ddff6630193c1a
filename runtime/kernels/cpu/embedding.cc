// Token and position embeddings. Gradients are scattered by column ranges, each in row order: the
// same bits for any number of threads, and no two threads write one element.
#include <algorithm>

#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/loop_kernel.h"
#include "runtime/kernels/cpu/row_loops.h"
#include "runtime/kernels/cpu/threads.h"

namespace trireme::kernels::cpu {
namespace {
using graph::OpCall;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;

void ZeroRows(float* matrix, int64_t rows, const OpSpec& s, int threads) {
  ForRows(rows, s.cols, threads, [&](Range part) {
    std::fill(matrix + part.begin * s.cols, matrix + part.end * s.cols, 0.0f);
  });
}

template <typename T>
void TokenForward(const OpSpec& s, int threads, const OpCall& call) {
  const auto* tokens = call.In<int32_t>(graph::kTokens);
  const T* w = call.In<T>(graph::kW);
  T* y = call.Out<T>(graph::kY);
  ForRows(s.rows, s.cols, threads, [&](Range rows) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t token = tokens[r] - s.vocab_begin;
      if (token >= 0 && token < s.vocab_rows) {
        std::copy_n(w + token * s.cols, s.cols, y + r * s.y_ld);
      } else {
        std::fill_n(y + r * s.y_ld, s.cols, T{});
      }
    }
  });
}

template <typename T>
void PositionForward(const OpSpec& s, int threads, const OpCall& call) {
  const T* x = call.In<T>(graph::kX);
  const T* w = call.In<T>(graph::kW);
  T* y = call.Out<T>(graph::kY);
  ForRows(s.rows, s.cols, threads, [&](Range rows) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      ResidualArgs<T> add;
      add.x = x + r * s.x_ld;
      add.b = w + (s.row_begin + r) % s.tokens * s.cols;
      add.y = y + r * s.y_ld;
      add.cols = s.cols;
      RowLoopsOf<T>().add_rows(add, {0, 1});
    }
  });
}

// dw[row_of(r)] += dy[r]; rows for which row_of is negative are left out.
template <typename T, class RowOf>
void Scatter(const OpSpec& s, int threads, const OpCall& call, const RowOf& row_of) {
  const T* dy = call.In<T>(graph::kDY);
  float* dw = call.Out<float>(graph::kDW);
  ForColumns(s.rows, s.cols, threads, [&](Range cols) {
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t row = row_of(r);
      if (row < 0) continue;
      RowLoopsOf<T>().add_into(dy + r * s.y_ld + cols.begin, dw + row * s.cols + cols.begin,
                               cols.end - cols.begin);
    }
  });
}

}  // namespace

template <typename T>
std::unique_ptr<Kernel> MakeEmbedding(const OpSpec& spec, const PrepareOptions& options) {
  if (spec.phase == Phase::kInputGrad) return nullptr;
  const bool token = spec.kind == OpKind::kEmbedding;
  const int threads = options.threads;
  return MakeLoop([spec, threads, token](const OpCall& call) {
    if (spec.phase == Phase::kForward) {
      return token ? TokenForward<T>(spec, threads, call) : PositionForward<T>(spec, threads, call);
    }
    if (!call.accumulate) {
      ZeroRows(call.Out<float>(graph::kDW), token ? spec.vocab_rows : spec.weight_rows, spec,
               threads);
    }
    const auto* tokens = call.In<int32_t>(graph::kTokens);
    if (token) {
      Scatter<T>(spec, threads, call, [&](int64_t r) {
        const int64_t row = tokens[r] - spec.vocab_begin;
        return row < spec.vocab_rows ? row : int64_t{-1};
      });
    } else {
      Scatter<T>(spec, threads, call,
                 [&](int64_t r) { return (spec.row_begin + r) % spec.tokens; });
    }
  });
}

template std::unique_ptr<Kernel> MakeEmbedding<float>(const OpSpec&, const PrepareOptions&);
template std::unique_ptr<Kernel> MakeEmbedding<tensor::BFloat16>(const OpSpec&,
                                                                 const PrepareOptions&);

}  // namespace trireme::kernels::cpu
