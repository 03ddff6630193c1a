// Workspace of attention by tiles of bf16, and the run-time choice of its instruction set.
#include <cmath>
#include <cstring>

#include "runtime/kernels/cpu/attention_loops.h"
#include "runtime/kernels/cpu/bf16_tiles.h"
#include "runtime/kernels/cpu/workspace.h"

namespace trireme::kernels::cpu {
namespace {
using tensor::BFloat16;

constexpr int64_t kForwardQueries = 64, kForwardKeys = 128;
constexpr int64_t kBackwardQueries = 128, kBackwardKeys = 128;
static_assert(kAttentionCut % kForwardQueries == 0 && kAttentionCut % kBackwardKeys == 0);

// Added to rows of as many elements as there are tokens: rows a power of two apart would all lie in
// the same few lines of the first-level cache.
constexpr int64_t kSkew = 32;

// Of an element of a matrix in bf16, half a float.
int64_t Halves(int64_t count) { return (count + 1) / 2; }

// keys [tokens][width], values transposed [width][values_ld]; scores, pairs and factors
// [keys][queries] of a tile, mixed [width][queries].
struct TileForwardSpace {
  TileForwardSpace(Carver &carver, int64_t tokens, int64_t head_dim)
      : width(Padded(head_dim, kTileUnit)),
        values_ld(Padded(tokens, kTileUnit) + kSkew),
        keys(carver.Take<BFloat16>(Halves(Padded(tokens, kTileUnit) * width))),
        values(carver.Take<BFloat16>(Halves(values_ld * width))),
        unit(carver.Take<BFloat16>(Halves(kTileUnit * width))),
        unit_pairs(carver.Take<uint32_t>(Halves(kTileUnit * width))),
        queries(carver.Take<uint32_t>(Halves(kForwardQueries * width))),
        pairs(carver.Take<uint32_t>(Halves(kForwardQueries * kForwardKeys))),
        scores(carver.Take(kForwardQueries * kForwardKeys)),
        mixed(carver.Take(kForwardQueries * width)),
        rows(carver.Take(kForwardQueries * width)),
        by_query(carver.Take(kForwardQueries * kForwardKeys)),
        factors(carver.Take(kForwardQueries * kForwardKeys)),
        max(carver.Take(kForwardQueries)),
        sum(carver.Take(kForwardQueries)),
        rescale(carver.Take(kForwardQueries)) {}

  int64_t width, values_ld;
  BFloat16 *keys, *values, *unit;
  uint32_t *unit_pairs, *queries, *pairs;
  float *scores, *mixed, *rows, *by_query, *factors, *max, *sum, *rescale;
};

// Tokens count from the first key. *_t: [width][ld]. queries and dy are right operands, in
// pairs of columns (_t) and of rows. scores, dp, p and ds: [kTileUnit keys][kBackwardQueries].
struct TileBackwardSpace {
  TileBackwardSpace(Carver &carver, int64_t tokens, int64_t head_dim)
      : width(Padded(head_dim, kTileUnit)),
        ld(Padded(tokens, kTileUnit) + kSkew),
        keys(carver.Take<BFloat16>(Halves(ld * width))),
        values(carver.Take<BFloat16>(Halves(ld * width))),
        keys_t(carver.Take<BFloat16>(Halves(ld * width))),
        unit(carver.Take<BFloat16>(Halves(kTileUnit * width))),
        p(carver.Take<BFloat16>(Halves(kTileUnit * kBackwardQueries))),
        ds(carver.Take<BFloat16>(Halves(kTileUnit * kBackwardQueries))),
        unit_pairs(carver.Take<uint32_t>(Halves(kTileUnit * width))),
        queries_t(carver.Take<uint32_t>(Halves(ld * width))),
        queries(carver.Take<uint32_t>(Halves(ld * width))),
        dy_t(carver.Take<uint32_t>(Halves(ld * width))),
        dy(carver.Take<uint32_t>(Halves(ld * width))),
        ds_pairs(carver.Take<uint32_t>(Halves(kBackwardKeys * kBackwardQueries))),
        dk(carver.Take(ld * width)),
        dv(carver.Take(ld * width)),
        dq_t(carver.Take(ld * width)),
        scores(carver.Take(kTileUnit * kBackwardQueries)),
        dp(carver.Take(kTileUnit * kBackwardQueries)),
        rows(carver.Take(kBackwardQueries * width)),
        by_query(carver.Take(kBackwardKeys * kBackwardQueries)),
        factors(carver.Take(kBackwardKeys * kBackwardQueries)),
        lse(carver.Take(ld)),
        delta(carver.Take(ld)) {}

  int64_t width, ld;
  BFloat16 *keys, *values, *keys_t, *unit, *p, *ds;
  uint32_t *unit_pairs, *queries_t, *queries, *dy_t, *dy, *ds_pairs;
  float *dk, *dv, *dq_t, *scores, *dp, *rows, *by_query, *factors, *lse, *delta;
};

}  // namespace
}  // namespace trireme::kernels::cpu

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/cpu/attention_tiles.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "runtime/kernels/cpu/attention_tiles.inc"

namespace trireme::kernels::cpu {
namespace {
HWY_EXPORT(TileLoops);
}  // namespace

std::optional<AttentionLoops<BFloat16>> AttentionTileLoops() {
  const AttentionLoops<BFloat16> *loops = HWY_DYNAMIC_DISPATCH(TileLoops)();
  if (loops == nullptr || FastestTiles() == nullptr) return std::nullopt;
  AttentionLoops<BFloat16> complete = *loops;
  complete.backward_sum = AttentionLoopsOf<BFloat16>().backward_sum;
  return complete;
}

}  // namespace trireme::kernels::cpu
