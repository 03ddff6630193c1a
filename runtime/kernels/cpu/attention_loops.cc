// Workspace of the attention tiles, and the run-time choice of their instruction set.
#include "runtime/kernels/cpu/attention_loops.h"

#include <cmath>

#include "runtime/kernels/cpu/workspace.h"

namespace trireme::kernels::cpu {
namespace {

// Scores of a tile: 32 KiB. Wider key tiles spread each query's maximum and sum over more keys.
constexpr int64_t kQueryTile = 64;
constexpr int64_t kKeyTile = 128;
static_assert(kAttentionCut % kQueryTile == 0 && kAttentionCut % kKeyTile == 0);
// Queries (keys, in the transposed products) that share one end at the diagonal; a multiple of
// every vector length.
constexpr int64_t kGroup = 16;

// width: head_dim rounded up to whole vectors. Keys in tiles [tokens /
// kKeyTile][head_dim][kKeyTile].
struct ForwardSpace {
  ForwardSpace(Carver& carver, int64_t tokens, int64_t head_dim)
      : width(Padded(head_dim, kGroup)),
        keys(carver.Take(Padded(tokens, kKeyTile) * head_dim)),
        values(carver.Take(Padded(tokens, kKeyTile) * width)),
        queries(carver.Take(kQueryTile * width)),
        mixed(carver.Take(kQueryTile * width)),
        scores(carver.Take(kQueryTile * kKeyTile)),
        max(carver.Take(kQueryTile)),
        sum(carver.Take(kQueryTile)) {}

  int64_t width;
  float *keys, *values, *queries, *mixed, *scores, *max, *sum;
};

struct BackwardSpace {
  BackwardSpace(Carver& carver, int64_t tokens, int64_t head_dim)
      : width(Padded(head_dim, kGroup)),
        keys_t(carver.Take(Padded(tokens, kKeyTile) * head_dim)),
        values_t(carver.Take(Padded(tokens, kKeyTile) * head_dim)),
        keys(carver.Take(Padded(tokens, kKeyTile) * width)),
        dk(carver.Take(Padded(tokens, kKeyTile) * width)),
        dv(carver.Take(Padded(tokens, kKeyTile) * width)),
        queries(carver.Take(kQueryTile * width)),
        dy(carver.Take(kQueryTile * width)),
        dq(carver.Take(kQueryTile * width)),
        scores(carver.Take(kQueryTile * kKeyTile)),
        ds(carver.Take(kQueryTile * kKeyTile)),
        delta(carver.Take(kQueryTile)),
        lse(carver.Take(kQueryTile)) {}

  int64_t width;
  float *keys_t, *values_t, *keys, *dk, *dv, *queries, *dy, *dq, *scores, *ds, *delta, *lse;
};

}  // namespace
}  // namespace trireme::kernels::cpu

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/attention_loops.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "runtime/kernels/cpu/attention_loops.inc"

namespace trireme::kernels::cpu {
namespace {
HWY_EXPORT(AttentionLoopsF32);
HWY_EXPORT(AttentionLoopsBf16);
}  // namespace

int64_t AttentionWidth(int64_t head_dim) { return Padded(head_dim, kGroup); }

template <>
const AttentionLoops<float>& AttentionLoopsOf() {
  return HWY_DYNAMIC_DISPATCH(AttentionLoopsF32)();
}
template <>
const AttentionLoops<tensor::BFloat16>& AttentionLoopsOf() {
  return HWY_DYNAMIC_DISPATCH(AttentionLoopsBf16)();
}

}  // namespace trireme::kernels::cpu
