// One head of causal attention, forward or backward, without its T x T matrix: tiles of queries
// meet tiles of keys in the first two cache levels (Dao et al., arXiv 2205.14135), the half above
// the diagonal is skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/kernels/cpu/row_loops.h"

namespace trireme::kernels::cpu {

// T: float or tensor::BFloat16, of which tiles are widened to f32 where they are read. Rows of a
// head's q, k, v, y and gradients lie x_ld or y_ld elements apart; pointers are at token 0 of the
// sample.
template <typename T>
struct AttentionHead {
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const T* y = nullptr;
  const T* dy = nullptr;
  T* y_out = nullptr;
  T* dq = nullptr;
  float* stats = nullptr;  // log-sum-exp of token t at stats[t * stats_ld]
  int64_t tokens = 0, head_dim = 0;
  int64_t x_ld = 0, y_ld = 0, stats_ld = 0;
  // What is worked on: queries (forward) or keys (backward). `begin` is a multiple of
  // kAttentionCut, and so is `end` where it is not the last token.
  int64_t begin = 0, end = 0;
  // Backward of some of the keys: their share of dq / scale goes here, [tokens][AttentionWidth],
  // and dq is left to backward_sum. Null: these are all keys.
  float* dq_part = nullptr;
  const DropoutStream* dropout = nullptr;  // null: none
  uint64_t first_element = 0;              // of query 0 and key 0 in the dropout stream
};

inline constexpr int64_t kAttentionCut = 128;

// Floats of a row of dq_part.
int64_t AttentionWidth(int64_t head_dim);

// Shares of dq: of part p, whose keys begin at begins[p], at parts + p * floats.
struct AttentionShares {
  const float* parts = nullptr;
  int64_t floats = 0;
  const int64_t* begins = nullptr;
  int64_t count = 0;
};

// `workspace` is aligned to 64 bytes. The gradients of the keys and values of one group: begin,
// then add for each query head that reads them (dq or dq_part of each is written), then end writes
// dk and dv (rows x_ld apart). All with the same workspace and keys.
template <typename T>
struct AttentionLoops {
  // y_out and stats of some queries of one head.
  void (*forward)(const AttentionHead<T>& head, float* workspace);
  void (*backward_begin)(const AttentionHead<T>& head, float* workspace);
  void (*backward_add)(const AttentionHead<T>& head, float* workspace);
  void (*backward_end)(const AttentionHead<T>& head, T* dk, T* dv, float* workspace);
  // dq of queries begin .. end - 1, the parts added in their order.
  void (*backward_sum)(const AttentionHead<T>& head, const AttentionShares& shares);
  // Floats of workspace that a thread needs.
  int64_t (*forward_floats)(int64_t tokens, int64_t head_dim);
  int64_t (*backward_floats)(int64_t tokens, int64_t head_dim);
};

// In f32 arithmetic, of the best instruction set of this machine. T: float or tensor::BFloat16.
template <typename T>
const AttentionLoops<T>& AttentionLoopsOf();

// By products of bf16 (bf16_tiles.h), several times as fast: probabilities and the gradients of
// scores are rounded to bf16 before they are multiplied. Nothing where the processor has none.
std::optional<AttentionLoops<tensor::BFloat16>> AttentionTileLoops();

}  // namespace trireme::kernels::cpu
