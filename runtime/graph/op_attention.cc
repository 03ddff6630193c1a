// Attention, x = packed [rows][q: H*D | k: KV*D | v: KV*D], y [rows, H*D]:
//   F: causal within each sample, head h reads key/value head h / (H/KV); scale 1/sqrt(D);
//      stats[row][h] = log-sum-exp of the scaled scores
//   I: dx (packed) from dy, x, y, stats
// Dropout is on probabilities: element index
// ((sample*global_heads + head_begin + h) * tokens + q) * tokens + k
#include "runtime/graph/op_rules.h"

namespace trireme::graph {
namespace {

constexpr Shape PackedX(const OpSpec& spec) { return {spec.rows, PackedHeads(spec), spec.x_ld}; }
constexpr Shape Mixed(const OpSpec& spec) {
  return {spec.rows, spec.heads * spec.head_dim, spec.y_ld};
}
constexpr Shape LogSums(const OpSpec& spec) { return Dense(spec.rows, spec.heads); }

// Two products forward and five backward, over the causal half.
double FlopsOfAttention(const OpSpec& spec) {
  return (spec.phase == Phase::kForward ? 2.0 : 5.0) *
         static_cast<double>(spec.rows * spec.tokens * spec.heads * spec.head_dim);
}

}  // namespace

constinit const OpSchema kAttentionSchema = {
    .name = "Attention",
    .operands = {{Read(kX, PackedX), Write(kY, Mixed), Wide(Write(kStats, LogSums))},
                 {Read(kDY, Mixed), Read(kX, PackedX), Read(kY, Mixed), Wide(Read(kStats, LogSums)),
                  Write(kDX, PackedX)}},
    .flops = FlopsOfAttention,
    .recompute = Recompute::kSelective,
    .spec = HeadSpec,
    .forward = ForwardOnColumns,
    .backward = BackwardOnColumns};

}  // namespace trireme::graph
