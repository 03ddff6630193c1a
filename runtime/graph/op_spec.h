// What a kernel is told: OpSpec (static: kind, phase, shapes, attributes) at preparation and OpCall
// (pointers, step) at each run. Letters: B samples of the micro-batch, T tokens of a sample, N =
// B*T rows (or this rank's share of them), C width, H local query heads, KV local key/value heads,
// D head size, V local vocabulary rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/tensor/dtype.h"

namespace trireme::graph {

enum class OpKind : uint8_t {
  kEmbedding,
  kPositionEmbedding,
  kLayerNorm,
  kRmsNorm,
  kLinear,
  kRope,
  kAttention,
  kGelu,
  kSwiGlu,
  kResidualAdd,
  kLmHeadLoss,
  kLossCombine,
  // Collectives over the tensor group: rows of a [N, C] buffer split as row_offsets.
  kAllReduce,
  kAllGather,
  kReduceScatter,
};

enum class Phase : uint8_t { kForward, kInputGrad, kWeightGrad };

// kInOut: weight [inner, cols] (GPT-2's Conv1D); kOutIn: weight [cols, inner] (torch's Linear).
enum class WeightLayout : uint8_t { kInOut, kOutIn };

// Names of the operands of an operator; which are present depends on kind and phase, see below.
enum Operand : uint8_t {
  kX,         // input activation [rows, inner or cols], leading dimension x_ld
  kY,         // output activation [rows, cols], leading dimension y_ld
  kW,         // weight, or gamma of a norm
  kB,         // bias, or beta of a norm
  kResidual,  // residual stream added by ResidualAdd (and by Linear where fused_residual)
  kStats,     // saved statistics, of AccumulatorOf(dtype)
  kTokens,    // i32 [B*T] token ids (Embedding) or targets (LmHeadLoss; < 0: row is not counted)
  kDY,        // gradient of kY, leading dimension y_ld
  kDX,        // gradient of kX, leading dimension x_ld
  kBase,      // added to the input gradient: dx = base + ...; may be the same memory as kDX; null:
              // nothing
  kDW,        // gradient of kW
  kDB,        // gradient of kB
  kOperandCount,
};

// Semantics of each kind and phase (c.* is OpCall, everything row-major):
//
// Embedding           F: y[r,:] = w[tokens[r] - vocab_begin, :] if 0 <= tokens[r] - vocab_begin <
// vocab_rows, else 0
//                     W: dw[tokens[r] - vocab_begin, :] += dy[r,:] for those rows (dw zeroed first
//                     unless accumulate)
// PositionEmbedding   F: y[r,:] = x[r,:] + w[(row_begin + r) % tokens, :]       (no I: the gradient
// passes through)
//                     W: dw[(row_begin + r) % tokens, :] += dy[r,:] (all of dw [weight_rows, cols]
//                     zeroed first unless accumulate)
// LayerNorm           F: stats[r] = (mean, 1/sqrt(var + epsilon)); y = (x - mean) * rstd * w + b (b
// may be null)
//                     I: dx = base + gradient, from dy, x, stats, w;   W: dw, db (db may be null)
//                     from dy, x, stats
// RmsNorm             F: stats[r] = 1/sqrt(mean(x^2) + epsilon); y = x * rstd * w;  I, W likewise
// Linear              F: y = x * W + b (b may be null) (+ residual [rows, cols] if fused_residual);
// x [rows, inner], W as weight_layout
//                     I: dx = base + dy * W^T;   W: dw = x^T dy in weight_layout, db = column sums
//                     of dy (db may be null)
// Rope                F: in place on y: the first (heads + kv_heads) heads of each row's [heads + 2
// kv_heads][D] are rotated by
//                        angle t / rope_theta^(2i/D), t = (row_begin + r) % tokens, pairs (i, i +
//                        D/2) ("rotate half")
//                     I: in place on dy: the inverse rotation
// Attention           x = packed [rows][q: H*D | k: KV*D | v: KV*D], y [rows, H*D], causal within
// each sample, head h reads
//                     key/value head h / (H/KV); scale 1/sqrt(D); stats[row][h] = log-sum-exp of
//                     the scaled scores I: dx (packed) from dy, x, y, stats. Dropout on
//                     probabilities: element index
//                     ((sample*global_heads + head_begin + h) * tokens + q) * tokens + k
// Gelu                F: y = gelu_tanh(x);   I: dx = base + dy * gelu'(x)
// SwiGlu              x = [rows][gate: cols | up: cols], y = silu(gate) * up;   I: dx (packed) from
// dy, x ResidualAdd         F: y = residual + dropout(x + b)    (residual, b may be null)
//                     I: dx = dropout mask applied to dy (not emitted where dropout_p == 0: an
//                     alias) W: db = column sums of dropout-masked dy. Element index
//                     ((sample*tokens + t) * cols + c)
// LmHeadLoss          F: y = logits [rows, cols] = x * W (cols = vocab_rows); stats[r] = (max, sum
// exp(logit - max), logit of the
//                        target, 0 where it is not local) over the local vocabulary
//                     I: logits in y become (softmax(y) - onehot) * loss_scale (0 for rows not
//                     counted), softmax by
//                        kBase = lse[rows]; dx = that * W^T
//                     W: dw = x^T * y (y is dlogits by now)
// LossCombine         F: x = stats of all tensor ranks [tensor_ranks][rows][3]; y = lse[rows];
//                        kDB (f64[1]) += sum over counted rows of (lse - target logit)       (not
//                        scaled)
//
// accumulate (OpCall) : dw, db are added to instead of overwritten.
// Dropout: keep an element if Uniform32(seed, site, step, index) >= threshold(p); kept ones are
// scaled by 1/(1-p) (runtime/base/philox.h).
struct OpSpec {
  OpKind kind = OpKind::kLinear;
  Phase phase = Phase::kForward;
  tensor::DType dtype = tensor::DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t inner = 0;
  int64_t x_ld = 0;  // elements between rows of kX and kDX
  int64_t y_ld = 0;  // elements between rows of kY and kDY
  WeightLayout weight_layout = WeightLayout::kOutIn;
  bool fused_residual = false;
  int64_t row_begin = 0;    // first row of this rank inside the micro-batch (sequence parallelism)
  int64_t weight_rows = 0;  // PositionEmbedding: rows of w
  int64_t vocab_begin = 0;
  int64_t vocab_rows = 0;
  int64_t tokens = 0;  // T
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t head_begin = 0;
  int64_t global_heads = 0;
  int64_t tensor_ranks = 1;
  double epsilon = 0;
  double rope_theta = 0;
  double dropout_p = 0;
  uint64_t site = 0;  // hash of the site's name, the dropout stream

  friend bool operator==(const OpSpec&, const OpSpec&) = default;
};

struct OpCall {
  std::array<void*, kOperandCount> operand{};
  bool accumulate = false;
  // Index in the global batch of the sample of row 0 of the micro-batch (row_begin counts from
  // there); samples follow one another.
  int64_t first_sample = 0;
  uint64_t seed = 0;
  uint64_t step = 0;
  bool training = true;   // false: no dropout
  double loss_scale = 0;  // 1 / number of counted tokens of the global batch
  std::span<std::byte> scratch;

  template <typename T>
  const T* In(Operand name) const {
    return static_cast<const T*>(operand[name]);
  }
  template <typename T>
  T* Out(Operand name) const {
    return static_cast<T*>(operand[name]);
  }
};

}  // namespace trireme::graph
