// Memory of one pipeline coordinate: pools, slots and the exact size of the arena.
#pragma once

#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/plan/program_builder.h"
#include "runtime/plan/state_layout.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Pools begin on multiples of these: what is mapped or shared apart from the rest is a range of
// pages. Slots of a pool follow one another on cache lines, as kernels and copies want them.
constexpr uint64_t kPageBytes = 4096, kLineBytes = 64;

// Loss, norm and flags of a rank.
constexpr uint64_t kScalarBytes = 4096;

// Bytes of one slot of each kind of a virtual stage. Which tensor coordinate needs most differs
// from kind to kind, and for the coloured temporaries it may be any: a rank with smaller buffers
// can colour them worse.
struct SlotBytes {
  uint64_t activation = 0, stash = 0, gradient_stash = 0, boundary = 0, temporary = 0;
  void Raise(const graph::StageOps& ops);
};

// Elements of buckets that are whole for a while (BucketWalk).
struct BucketElements {
  int64_t gathered = 0, partial = 0;
};

// Fills stage.pools and stage.arena_bytes. Pools begin on pages. `bytes` and `slots` are per
// virtual stage, `bytes` raised by every tensor coordinate.
void PlanMemory(const v1::Plan& plan, v1::StagePlan& stage, const std::vector<SlotBytes>& bytes,
                const std::vector<SlotCounts>& slots, const StateLayout& state,
                const BucketElements& at_hand);

// The pool of the arena that a buffer's slots are in.
v1::PoolKind PoolKindOf(graph::BufferPool pool);

// Scratch that the job's kernels may use: for runtime.threads of a rank; where the job leaves them
// open for resources.cpus_per_rank, eight at least.
uint64_t ScratchBytes(const v1::JobSpec& job);
// The job as it is to be planned where a rank will have `threads`: its number, if it leaves them
// open and that is more than eight.
v1::JobSpec ForThreads(v1::JobSpec job, int threads);

}  // namespace trireme::plan
