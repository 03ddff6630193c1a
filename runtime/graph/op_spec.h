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
  // Collectives over the tensor group, see LoweredOp::offsets.
  kAllReduce,
  kAllGather,
  kReduceScatter,
};

enum class Phase : uint8_t { kForward, kInputGrad, kWeightGrad };

// kInOut: weight [inner, cols] (GPT-2's Conv1D); kOutIn: weight [cols, inner] (torch's Linear).
enum class WeightLayout : uint8_t { kInOut, kOutIn };

// Names of the operands of an operator; its OpSchema says which are present in which phase.
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
  kBase,      // added to the input gradient: dx = base + ...; null: nothing
  kDW,        // gradient of kW
  kDB,        // gradient of kB
  kOperandCount,
};

// What each kind computes stands in its own file, op_<operator>.cc: F forward, I input-grad, W
// weight-grad, everything row-major, c.* is OpCall. Of all:
// accumulate: dw, db are added to instead of overwritten.
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
