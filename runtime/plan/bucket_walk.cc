#include "runtime/plan/bucket_walk.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace trireme::plan {

namespace {

constexpr size_t kLists = 4;

std::vector<uint32_t> Sorted(const std::set<uint32_t>& set) { return {set.begin(), set.end()}; }

bool Contains(const std::vector<uint32_t>& sorted, uint32_t bucket) {
  return std::binary_search(sorted.begin(), sorted.end(), bucket);
}

}  // namespace

// Largest first, each at the lowest place that is free of those it meets.
Places PlaceBuckets(const std::vector<v1::Bucket>& buckets, const Lives& lives) {
  std::vector<std::set<uint32_t>> meets(buckets.size());
  std::set<uint32_t> used;
  for (const std::vector<uint32_t>& together : lives) {
    used.insert(together.begin(), together.end());
    for (const uint32_t bucket : together) {
      meets[bucket].insert(together.begin(), together.end());
    }
  }
  std::vector<uint32_t> order(used.begin(), used.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return buckets[a].count() > buckets[b].count(); });
  Places places{.offsets = std::vector<int64_t>(buckets.size(), 0)};
  std::set<uint32_t> placed;
  for (const uint32_t bucket : order) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const uint32_t other : meets[bucket]) {
      if (!placed.contains(other)) continue;
      taken.emplace_back(places.offsets[other],
                         places.offsets[other] + static_cast<int64_t>(buckets[other].count()));
    }
    std::sort(taken.begin(), taken.end());
    const auto count = static_cast<int64_t>(buckets[bucket].count());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + count <= begin) break;
      offset = std::max(offset, end);
    }
    places.offsets[bucket] = offset;
    places.elements = std::max(places.elements, offset + count);
    placed.insert(bucket);
  }
  return places;
}

BucketWalk::BucketWalk(const std::vector<const graph::StageOps*>& stages, const StateLayout& state,
                       int zero_stage, Emitter emitter)
    : state_(state), zero_stage_(zero_stage), emitter_(std::move(emitter)) {
  if (!reduces()) return;
  for (const StatePlace& place : state.places) {
    const auto id = static_cast<size_t>(place.parameter);
    if (bucket_of_.size() <= id) bucket_of_.resize(id + 1);
    bucket_of_[id] = place.bucket;
  }
  blocks_.resize(stages.size() * kLists);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto of = [&](Compute kind) -> std::vector<BlockOps>& {
      return blocks_[stage * kLists + static_cast<size_t>(kind)];
    };
    for (const uint32_t end : stages[stage]->forward_end) {
      forward_.push_back(Cut(stages[stage]->forward, end));
    }
    const auto whole = [this](const std::vector<graph::LoweredOp>& list) {
      return Cut(list, list.size());
    };
    of(Compute::kInputGrad) = whole(stages[stage]->input_grad);
    of(Compute::kWeightGrad) = whole(stages[stage]->weight_grad);
    of(Compute::kBackward) = whole(stages[stage]->backward);
  }
}

std::vector<BlockOps> BucketWalk::Cut(const std::vector<graph::LoweredOp>& list,
                                      size_t length) const {
  std::vector<BlockOps> blocks;
  for (size_t begin = 0; begin < length;) {
    size_t end = begin;
    std::set<uint32_t> reads, writes;
    for (; end < length && list[end].block == list[begin].block; ++end) {
      for (const graph::OperandRef& operand : list[end].operand) {
        if (operand.space == graph::Space::kParameter) reads.insert(bucket_of_[operand.id]);
        if (operand.space == graph::Space::kGradient) writes.insert(bucket_of_[operand.id]);
      }
    }
    blocks.push_back({.begin = static_cast<uint32_t>(begin),
                      .end = static_cast<uint32_t>(end),
                      .reads = Sorted(reads),
                      .writes = Sorted(writes)});
    begin = end;
  }
  if (blocks.empty()) blocks.emplace_back();  // an empty list is one instruction too
  std::set<uint32_t> later;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    for (const uint32_t bucket : block->writes) {
      if (later.insert(bucket).second) block->completes.push_back(bucket);
    }
  }
  return blocks;
}

const std::vector<BlockOps>& BucketWalk::BlocksOf(const ComputeStep& step) const {
  if (step.kind == Compute::kForward) {
    return forward_[step.virtual_stage * graph::kForwardUses + static_cast<size_t>(use_)];
  }
  return blocks_[step.virtual_stage * kLists + static_cast<size_t>(step.kind)];
}

void BucketWalk::Begin(const std::vector<ComputeStep>& order, graph::ForwardUse use) {
  use_ = use;
  order_.clear();
  at_ = 0;
  gathered_.clear();
  if (!reduces()) return;
  for (const ComputeStep& step : order) {
    // Forward writes no gradient.
    if (step.kind == Compute::kForward && !gathers()) continue;
    for (const BlockOps& block : BlocksOf(step)) order_.push_back(&block);
  }
}

void BucketWalk::Gather(const BlockOps& block) {
  for (const uint32_t bucket : block.reads) {
    const bool known = std::any_of(gathered_.begin(), gathered_.end(),
                                   [&](const auto& each) { return each.first == bucket; });
    if (!known) gathered_.emplace_back(bucket, emitter_.gather(bucket));
  }
}

void BucketWalk::Before(const BlockOps& block) {
  TRIREME_CHECK(order_[at_] == &block);
  if (gathers()) {
    Gather(block);
    for (auto& [bucket, ticket] : gathered_) {
      if (ticket == kThere || !Contains(block.reads, bucket)) continue;
      emitter_.wait(std::exchange(ticket, kThere));
    }
    // One block ahead.
    if (at_ + 1 < order_.size()) Gather(*order_[at_ + 1]);
  }
  // What was issued behind the block before this one travels while this one computes.
  while (!reductions_.empty() && reductions_.front().block + 1 < at_) {
    emitter_.wait(reductions_.front().ticket);
    reductions_.erase(reductions_.begin());
  }
  // A bucket that is written again must have gone.
  for (size_t index = 0; index < reductions_.size();) {
    if (!Contains(block.writes, reductions_[index].bucket)) {
      ++index;
      continue;
    }
    emitter_.wait(reductions_[index].ticket);
    reductions_.erase(reductions_.begin() + static_cast<int64_t>(index));
  }
  open_.insert(block.writes.begin(), block.writes.end());
  NoteLives(block);
}

void BucketWalk::NoteLives(const BlockOps& block) {
  std::set<uint32_t> gathered(block.reads.begin(), block.reads.end()), partial = open_;
  for (const auto& [bucket, ticket] : gathered_) gathered.insert(bucket);
  for (const Reduction& reduction : reductions_) partial.insert(reduction.bucket);
  if (gathers()) gathered_lives_.insert(Sorted(gathered));
  partial_lives_.insert(Sorted(partial));
}

void BucketWalk::After(const BlockOps& block) {
  for (const uint32_t bucket : block.completes) {
    reductions_.push_back({bucket, emitter_.reduce(bucket), at_});
    open_.erase(bucket);
  }
  ++at_;
  const std::vector<uint32_t> none;
  const std::vector<uint32_t>& next = at_ < order_.size() ? order_[at_]->reads : none;
  std::erase_if(gathered_, [&](const auto& each) { return !Contains(next, each.first); });
}

void BucketWalk::Finish() {
  for (const Reduction& reduction : reductions_) emitter_.wait(reduction.ticket);
  reductions_.clear();
}

}  // namespace trireme::plan
