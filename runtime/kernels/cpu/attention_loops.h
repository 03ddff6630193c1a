// One head of causal attention, forward or backward, without its T x T matrix: tiles of queries
// meet tiles of keys in the first two cache levels (Dao et al., arXiv 2205.14135), the half above
// the diagonal is skipped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/cpu/row_loops.h"

namespace trireme::kernels::cpu {

// Rows of a head's q, k, v, y and gradients lie x_ld or y_ld elements apart; pointers are at token
// 0 of the sample.
struct AttentionHead {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* y = nullptr;
  const float* dy = nullptr;
  float* y_out = nullptr;
  float* dq = nullptr;
  float* stats = nullptr;  // log-sum-exp of token t at stats[t * stats_ld]
  int64_t tokens = 0, head_dim = 0;
  int64_t x_ld = 0, y_ld = 0, stats_ld = 0;
  const DropoutStream* dropout = nullptr;  // null: none
  uint64_t first_element = 0;              // of query 0 and key 0 in the dropout stream
};

// Floats of workspace one thread needs.
int64_t AttentionForwardFloats(int64_t tokens, int64_t head_dim);
int64_t AttentionBackwardFloats(int64_t tokens, int64_t head_dim);

// y_out and stats of one query head. `workspace` is aligned to 64 bytes.
void AttentionForward(const AttentionHead& head, float* workspace);

// The gradients of the keys and values of one group: Begin, then Add for each query head that reads
// them (dq of each is written), then End writes dk and dv (rows x_ld apart). All with the same
// workspace.
void AttentionBackwardBegin(const AttentionHead& head, float* workspace);
void AttentionBackwardAdd(const AttentionHead& head, float* workspace);
void AttentionBackwardEnd(const AttentionHead& head, float* dk, float* dv, float* workspace);

}  // namespace trireme::kernels::cpu
