// What ZeRO-2 and ZeRO-3 do around the operators of a program. A bucket's weights are gathered from
// their owners before the block that reads them, one block ahead, and forgotten behind it (ZeRO-3);
// a bucket's gradient is whole from the block that writes it to the end of its REDUCE, and then the
// owner's share alone (ZeRO-2). Buckets that are never whole at the same time lie at the same
// place: their places follow from the lives that the walk has seen.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/plan/schedule.h"
#include "runtime/plan/state_layout.h"

namespace trireme::plan {

// Operators of one block within a list, and the buckets of the parameters that they read and of the
// gradients that they write.
struct BlockOps {
  uint32_t begin = 0, end = 0;
  std::vector<uint32_t> reads, writes;
  std::vector<uint32_t> completes;  // of writes: no later block of the list writes them
};

// Sets of buckets that are whole at the same time.
using Lives = std::set<std::vector<uint32_t>>;

// Offsets in elements by bucket, and one past the last element. Buckets of one set do not overlap;
// those of none lie at 0.
struct Places {
  std::vector<int64_t> offsets;
  int64_t elements = 0;
};
Places PlaceBuckets(const std::vector<v1::Bucket>& buckets, const Lives& lives);

class BucketWalk {
 public:
  // How the walk adds instructions: both issues give the ticket.
  struct Emitter {
    std::function<uint32_t(uint32_t bucket)> gather, reduce;
    std::function<void(uint32_t ticket)> wait;
  };

  // `stages` and `state` must outlive it.
  BucketWalk(const std::vector<const graph::StageOps*>& stages, const StateLayout& state,
             int zero_stage, Emitter emitter);

  bool gathers() const { return zero_stage_ >= 3; }
  bool reduces() const { return zero_stage_ >= 2; }

  // Begins a program of these steps, whose forward is for `use`.
  void Begin(const std::vector<ComputeStep>& order, graph::ForwardUse use);
  // The blocks of a step, in order; Before and After stand around the instruction of each.
  const std::vector<BlockOps>& BlocksOf(const ComputeStep& step) const;
  void Before(const BlockOps& block);
  void After(const BlockOps& block);
  // Waits for what still travels.
  void Finish();

  // Over all programs.
  const Lives& gathered_lives() const { return gathered_lives_; }
  const Lives& partial_lives() const { return partial_lives_; }

 private:
  struct Reduction {
    uint32_t bucket = 0, ticket = 0;
    size_t block = 0;  // of the walk, behind which it was issued
  };
  static constexpr uint32_t kThere = 0;  // a ticket waited for

  // Of the first `length` operators.
  std::vector<BlockOps> Cut(const std::vector<graph::LoweredOp>& list, size_t length) const;
  void Gather(const BlockOps& block);
  void NoteLives(const BlockOps& block);

  const StateLayout& state_;
  const int zero_stage_;
  const Emitter emitter_;
  std::vector<std::vector<BlockOps>> blocks_;            // [virtual stage * 4 + Compute], no F
  std::vector<std::vector<BlockOps>> forward_;           // [virtual stage * uses + use]
  graph::ForwardUse use_ = graph::ForwardUse::kStep;     // of the program
  std::vector<uint32_t> bucket_of_;                      // by parameter
  std::vector<const BlockOps*> order_;                   // of the program, all blocks
  size_t at_ = 0;                                        // in order_
  std::vector<std::pair<uint32_t, uint32_t>> gathered_;  // (bucket, ticket or kThere)
  std::set<uint32_t> open_;                              // gradients that are being written
  std::vector<Reduction> reductions_;                    // under way
  Lives gathered_lives_, partial_lives_;
};

}  // namespace trireme::plan
