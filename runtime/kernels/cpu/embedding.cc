// Token and position embeddings. Gradients are scattered by column ranges, each in row order: the
// same bits for any number of threads, and no two threads write one element.
#include <cstring>

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

size_t RowBytes(const OpSpec& s) { return static_cast<size_t>(s.cols) * sizeof(float); }

void ZeroRows(float* matrix, int64_t rows, const OpSpec& s, int threads) {
  ForRows(rows, s.cols, threads, [&](Range part) {
    std::memset(matrix + part.begin * s.cols, 0,
                static_cast<size_t>(part.end - part.begin) * RowBytes(s));
  });
}

void TokenForward(const OpSpec& s, int threads, const OpCall& call) {
  const auto* tokens = call.In<int32_t>(graph::kTokens);
  const float* w = call.In<float>(graph::kW);
  float* y = call.Out<float>(graph::kY);
  ForRows(s.rows, s.cols, threads, [&](Range rows) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t token = tokens[r] - s.vocab_begin;
      if (token >= 0 && token < s.vocab_rows) {
        std::memcpy(y + r * s.y_ld, w + token * s.cols, RowBytes(s));
      } else {
        std::memset(y + r * s.y_ld, 0, RowBytes(s));
      }
    }
  });
}

void PositionForward(const OpSpec& s, int threads, const OpCall& call) {
  const float* x = call.In<float>(graph::kX);
  const float* w = call.In<float>(graph::kW);
  float* y = call.Out<float>(graph::kY);
  ForRows(s.rows, s.cols, threads, [&](Range rows) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      ResidualArgs add;
      add.x = x + r * s.x_ld;
      add.b = w + (s.row_begin + r) % s.tokens * s.cols;
      add.y = y + r * s.y_ld;
      add.cols = s.cols;
      AddRows(add, {0, 1});
    }
  });
}

// dw[row_of(r)] += dy[r]; rows for which row_of is negative are left out.
template <class RowOf>
void Scatter(const OpSpec& s, int threads, const OpCall& call, const RowOf& row_of) {
  const float* dy = call.In<float>(graph::kDY);
  float* dw = call.Out<float>(graph::kDW);
  ForColumns(s.rows, s.cols, threads, [&](Range cols) {
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t row = row_of(r);
      if (row < 0) continue;
      AddInto(dy + r * s.y_ld + cols.begin, dw + row * s.cols + cols.begin, cols.end - cols.begin);
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeEmbedding(const OpSpec& spec, const PrepareOptions& options) {
  if (spec.phase == Phase::kInputGrad) return nullptr;
  const bool token = spec.kind == OpKind::kEmbedding;
  const int threads = options.threads;
  return MakeLoop([spec, threads, token](const OpCall& call) {
    if (spec.phase == Phase::kForward) {
      return token ? TokenForward(spec, threads, call) : PositionForward(spec, threads, call);
    }
    if (!call.accumulate) {
      ZeroRows(call.Out<float>(graph::kDW), token ? spec.vocab_rows : spec.weight_rows, spec,
               threads);
    }
    const auto* tokens = call.In<int32_t>(graph::kTokens);
    if (token) {
      Scatter(spec, threads, call, [&](int64_t r) {
        const int64_t row = tokens[r] - spec.vocab_begin;
        return row < spec.vocab_rows ? row : int64_t{-1};
      });
    } else {
      Scatter(spec, threads, call, [&](int64_t r) { return (spec.row_begin + r) % spec.tokens; });
    }
  });
}

}  // namespace trireme::kernels::cpu
