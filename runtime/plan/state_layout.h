// Where the state of one pipeline coordinate lies: parameters in flat pools, cut into buckets of
// parameters that are Partial over the same axes, in the order in which backward finishes their
// gradients. Offsets are those of tensor coordinate 0, whose shards are the largest; the others
// leave gaps, so one layout serves the whole tensor group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/tensor/dtype.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// ZeRO cuts fall on multiples of this many elements (a cache line of f32).
constexpr int64_t kZeroAlignment = 16;

// Buckets of a pipeline coordinate. All are summed within backward and below ZeRO-2 none is waited
// for before its end, so this many operations are in flight; a 64th of the state is grain enough to
// overlap.
constexpr size_t kMostBuckets = 64;

struct StatePlace {
  graph::ParameterId parameter = graph::kNone;
  uint32_t bucket = 0;
  int64_t offset = 0;  // elements, in the flat pools
  bool tied_copy =
      false;  // the second copy of a tied parameter: summed with the first, counted once
};

struct StateLayout {
  std::vector<StatePlace> places;
  std::vector<v1::Bucket> buckets;
  int64_t elements = 0;
};

// What a flat pool of the state holds of a job of this compute dtype: PARAMETER what the products
// read, the others what sums and updates need.
tensor::DType StateDType(tensor::DType compute, v1::PoolKind kind);
// parallelism.zero_stage, or 0 where there is one replica.
int ZeroStage(const v1::Plan& plan);
// Whether each replica has its share of a flat pool alone (ZeRO).
bool IsSharded(const v1::Plan& plan, v1::PoolKind kind);
// Whether the optimizer updates a pool MASTER, and weights are derived.
bool HasMasters(const v1::Plan& plan);
// Of a flat pool on one rank; 0: the plan has none.
uint64_t StateBytes(const v1::Plan& plan, const StateLayout& state, v1::PoolKind kind);

bool IsPartialOver(const v1::Bucket& bucket, v1::ReduceAxis axis);

// One virtual stage's operators and the local index they run under.
struct StageOpsRef {
  uint32_t virtual_stage = 0;
  const graph::StageOps* ops = nullptr;
};

struct StateLayoutOptions {
  const graph::ModelGraph* graph = nullptr;
  int64_t tensor_size = 1;
  int64_t data_size = 1;
  int64_t bucket_bytes = 0;  // larger where there would be more than kMostBuckets
  bool by_block = false;     // a bucket ends with its block, of whatever size (ZeRO-2, ZeRO-3)
  bool tied_across_stages = false;  // the tied parameter is on two pipeline coordinates
  bool last_stage = false;          // this coordinate holds the second copy
};

// `stages`: of tensor coordinate 0, in the order in which their backward ends.
StateLayout LayOutState(const std::vector<StageOpsRef>& stages, const StateLayoutOptions& options);

// The part of [begin, begin + length) of a bucket's flat range that data coordinate `index` of
// `size` owns, relative to `begin`.
layout::Interval OwnedInterval(const v1::Bucket& bucket, int64_t begin, int64_t length,
                               int64_t size, int64_t index);

}  // namespace trireme::plan
