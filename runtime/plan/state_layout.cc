#include "runtime/plan/state_layout.h"

#include <algorithm>
#include <map>

#include "runtime/plan/planner.h"

namespace trireme::plan {

namespace {

using graph::ParameterId;

constexpr int64_t kGrowth = 8;  // sizes are tried in steps of an eighth

int64_t AlignUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

struct Completed {
  ParameterId id = graph::kNone;
  int32_t block = graph::kNone;
  uint32_t virtual_stage = 0;
  bool in_input_grad = false, in_weight_grad = false;  // lists of a split backward that write it
};

// Parameters in the order in which their gradients are complete.
std::vector<Completed> CompletionOrder(const std::vector<StageOpsRef>& stages) {
  std::vector<Completed> order;
  for (const StageOpsRef& stage : stages) {
    // The last I comes before the last W.
    for (const auto* list :
         {&stage.ops->backward, &stage.ops->input_grad, &stage.ops->weight_grad}) {
      for (const graph::LoweredOp& op : *list) {
        for (graph::Operand name : {graph::kDW, graph::kDB}) {
          const graph::OperandRef& target = op.operand[name];
          if (target.space != graph::Space::kGradient) continue;
          // A second writer completes it later.
          Completed completed{
              .id = target.id, .block = op.block, .virtual_stage = stage.virtual_stage};
          const auto earlier = std::find_if(order.begin(), order.end(), [&](const Completed& each) {
            return each.id == target.id;
          });
          if (earlier != order.end()) {
            completed.in_input_grad = earlier->in_input_grad;
            completed.in_weight_grad = earlier->in_weight_grad;
            order.erase(earlier);
          }
          completed.in_input_grad |= list == &stage.ops->input_grad;
          completed.in_weight_grad |= list == &stage.ops->weight_grad;
          order.push_back(completed);
        }
      }
    }
  }
  return order;
}

struct OpenBucket {
  std::vector<ParameterId> parameters;
  int64_t elements = 0;
  std::vector<v1::ReduceAxis> axes;
};

class BucketMaker {
 public:
  BucketMaker(const std::vector<StageOpsRef>& stages, const StateLayoutOptions& options,
              int64_t limit)
      : options_(options), limit_(limit) {
    for (const StageOpsRef& stage : stages) {
      partial_.insert(stage.ops->partial_over_tensor.begin(), stage.ops->partial_over_tensor.end());
    }
  }

  void Add(const Completed& completed) {
    const ParameterId id = completed.id;
    const bool tied = options_.tied_across_stages && id == options_.graph->tied;
    const bool tensor = partial_.contains(id);
    const int64_t size =
        AlignUp(options_.graph->parameters[id].LocalBox(options_.tensor_size, 0).elements(),
                kZeroAlignment);
    // The tied parameter is alone, so both copies are cut and summed alike. By block, a list of a
    // split backward writes all of a bucket or nothing.
    const bool alone =
        tied || (options_.by_block && completed.in_input_grad && completed.in_weight_grad);
    const bool apart = options_.by_block && completed.in_input_grad;
    const int kind = alone ? kAlone : (tensor ? 1 : 0) + (apart ? 2 : 0);
    OpenBucket& open = open_[kind];
    std::vector<v1::ReduceAxis> axes;
    if (!open.parameters.empty() && (alone || open.elements + size > limit_)) Close(kind);
    open.parameters.push_back(id);
    open.elements += size;
    if (options_.data_size > 1) axes.push_back(v1::AXIS_DATA);
    if (tensor) axes.push_back(v1::AXIS_TENSOR);
    if (tied) axes.push_back(v1::AXIS_TIED);
    open.axes = std::move(axes);
    if (alone || open.elements >= limit_) Close(kind);
  }

  void CloseAll() {
    for (int kind = 0; kind <= kAlone; ++kind) Close(kind);
  }
  std::vector<OpenBucket> Finish() {
    CloseAll();
    return std::move(done_);
  }

 private:
  static constexpr int kAlone = 4;

  void Close(int kind) {
    if (!open_[kind].parameters.empty()) done_.push_back(std::move(open_[kind]));
    open_[kind] = {};
  }

  const StateLayoutOptions& options_;
  const int64_t limit_;  // elements
  std::set<ParameterId> partial_;
  OpenBucket open_[kAlone + 1];
  std::vector<OpenBucket> done_;
};

// Of the size asked for, or of the next larger one that makes few enough.
std::vector<OpenBucket> MakeBuckets(const std::vector<StageOpsRef>& stages,
                                    const StateLayoutOptions& options) {
  const std::vector<Completed> order = CompletionOrder(stages);
  constexpr int64_t kNoLimit = int64_t{1} << 62;
  int64_t limit = std::max<int64_t>(1, options.bucket_bytes / 4);
  for (int blocks = 1;; ++blocks) {
    BucketMaker maker(stages, options, options.by_block ? kNoLimit : limit);
    int begun = 0;  // blocks of the open bucket
    for (size_t index = 0; index < order.size(); ++index) {
      if (options.by_block && index > 0) {
        const Completed &last = order[index - 1], &next = order[index];
        if (next.virtual_stage != last.virtual_stage) begun = blocks - 1;
        if (next.block != last.block && ++begun == blocks) {
          maker.CloseAll();
          begun = 0;
        }
      }
      maker.Add(order[index]);
    }
    std::vector<OpenBucket> buckets = maker.Finish();
    if (buckets.size() <= kMostBuckets) return buckets;
    limit += (limit + kGrowth - 1) / kGrowth;
  }
}

}  // namespace

StateLayout LayOutState(const std::vector<StageOpsRef>& stages, const StateLayoutOptions& options) {
  StateLayout layout;
  for (const OpenBucket& bucket : MakeBuckets(stages, options)) {
    int64_t offset = layout.elements;
    const bool tied = std::count(bucket.axes.begin(), bucket.axes.end(), v1::AXIS_TIED) > 0;
    for (ParameterId id : bucket.parameters) {
      layout.places.push_back({.parameter = id,
                               .bucket = static_cast<uint32_t>(layout.buckets.size()),
                               .offset = offset,
                               .tied_copy = tied && options.last_stage});
      offset += AlignUp(options.graph->parameters[id].LocalBox(options.tensor_size, 0).elements(),
                        kZeroAlignment);
    }
    v1::Bucket& message = layout.buckets.emplace_back();
    message.set_offset(static_cast<uint64_t>(layout.elements));
    const int64_t count = AlignUp(offset - layout.elements, kZeroAlignment * options.data_size);
    message.set_count(static_cast<uint64_t>(count));
    message.mutable_axes()->Add(bucket.axes.begin(), bucket.axes.end());
    layout.elements += count;
  }
  return layout;
}

tensor::DType StateDType(tensor::DType compute, v1::PoolKind kind) {
  const bool weights = kind == v1::PARAMETER || kind == v1::GATHERED;
  return weights ? compute : tensor::AccumulatorOf(compute);
}

int ZeroStage(const v1::Plan& plan) {
  return plan.mesh().data() > 1 ? static_cast<int>(plan.job().parallelism().zero_stage()) : 0;
}

bool IsSharded(const v1::Plan& plan, v1::PoolKind kind) {
  switch (kind) {
    case v1::PARAMETER:
      return ZeroStage(plan) >= 3;
    case v1::GRADIENT:
      return ZeroStage(plan) >= 2;
    default:
      return ZeroStage(plan) >= 1;
  }
}

// Where the weights themselves are as wide as sums, they are what the optimizer updates; unless it
// reads in one slot and writes in another, and weights are what follows.
bool HasMasters(const v1::Plan& plan) {
  const tensor::DType compute = ComputeDType(plan.job());
  return tensor::AccumulatorOf(compute) != compute || plan.snapshot_slots() > 0;
}

uint64_t StateBytes(const v1::Plan& plan, const StateLayout& state, v1::PoolKind kind) {
  const tensor::DType compute = ComputeDType(plan.job());
  if (kind == v1::MASTER && !HasMasters(plan)) return 0;
  const auto bytes =
      static_cast<uint64_t>(state.elements) * tensor::SizeOf(StateDType(compute, kind));
  return IsSharded(plan, kind) ? bytes / plan.mesh().data() : bytes;
}

bool IsPartialOver(const v1::Bucket& bucket, v1::ReduceAxis axis) {
  return std::count(bucket.axes().begin(), bucket.axes().end(), axis) > 0;
}

layout::Interval OwnedInterval(const v1::Bucket& bucket, int64_t begin, int64_t length,
                               int64_t size, int64_t index) {
  const int64_t share = static_cast<int64_t>(bucket.count()) / size;
  const int64_t share_begin = static_cast<int64_t>(bucket.offset()) + share * index;
  const int64_t from = std::clamp<int64_t>(share_begin - begin, 0, length);
  const int64_t to = std::clamp<int64_t>(share_begin + share - begin, 0, length);
  return {from, to};
}

}  // namespace trireme::plan
