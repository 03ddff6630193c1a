#include "runtime/plan/memory_plan.h"

#include <algorithm>
#include <array>

#include "runtime/base/check.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/planner.h"

namespace trireme::plan {

namespace {

// Room for products: what oneDNN's ask for at most on GPT-2 124M with 2 threads is not above the
// least, with whatever instructions; those that ask for more than the most take another way.
constexpr uint64_t kLeastProductBytes = 24ull << 20, kMostProductBytes = 64ull << 20;
// Threads that have room where the job says neither their number nor a larger one of CPUs a rank,
// and the most that a larger number may cost. Attention runs on as many threads as fit, at least
// one.
constexpr int64_t kUsualThreads = 8;
constexpr uint64_t kMostThreadedBytes = 1ull << 30;

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

class PoolList {
 public:
  explicit PoolList(v1::StagePlan& stage) : stage_(stage) {
    stage_.clear_pools();
    stage_.set_arena_bytes(0);
    stage_.set_host_bytes(0);
    stage_.set_file_bytes(0);
    stage_.set_snapshot_bytes(0);
  }

  void Add(v1::PoolKind kind, uint32_t virtual_stage, uint64_t slot_bytes, uint32_t slots,
           v1::PoolPlace place = v1::ARENA) {
    v1::Pool& pool = *stage_.add_pools();
    uint64_t& end = ends_[place];
    pool.set_kind(kind);
    pool.set_virtual_stage(virtual_stage);
    pool.set_slot_bytes(slot_bytes);
    pool.set_slots(slots);
    pool.set_offset_bytes(end);
    pool.set_place(place);
    // Slots follow one another on cache lines; pools on pages. Those of SNAPSHOT follow one another
    // in each of its slots.
    const bool once = place == v1::SNAPSHOT;
    const uint64_t bytes = once ? slot_bytes : slot_bytes * slots;
    if (place == v1::ARENA) stage_.set_arena_bytes(end + bytes);
    if (place == v1::HOST) stage_.set_host_bytes(end + bytes);
    if (place == v1::FILE) stage_.set_file_bytes(end + bytes);
    if (once) stage_.set_snapshot_bytes(RoundUp(end + bytes, kSnapshotUnitBytes) * slots);
    end += RoundUp(bytes, once ? kSnapshotPieceBytes : kPageBytes);
  }

 private:
  v1::StagePlan& stage_;
  std::array<uint64_t, v1::PoolPlace_ARRAYSIZE> ends_{};
};

uint64_t LineUp(uint64_t bytes) { return RoundUp(bytes, kLineBytes); }

int64_t Padded(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

// At least what a thread of runtime/kernels/cpu's attention works in: keys, values and their
// gradients of a head in whole tiles, and a few tiles of queries and scores. In bf16, where a
// processor multiplies such tiles, queries and their gradients too, some of it in both orders.
uint64_t AttentionThreadBytes(const v1::JobSpec& job) {
  const int64_t head_dim = job.model().config().head_dim();
  const int64_t tokens = job.data().sequence_length();
  const int64_t width = Padded(head_dim, 16);
  int64_t floats = 5 * (Padded(tokens, 128) + 64) * width + 3 * 64 * 128;
  if (ComputeDType(job) == tensor::DType::kBf16) {
    const int64_t tiled = Padded(head_dim, 32), rows = Padded(tokens, 32) + 32;
    floats = std::max(floats, 13 * rows * tiled / 2 + 160 * tiled + 2 * rows + 54 * 1024);
  }
  return static_cast<uint64_t>(floats) * sizeof(float);
}

// Of the sums that attention's backward leaves in parts, at most, where a rank has so few groups of
// heads that it cuts tokens too.
uint64_t AttentionShareBytes(const v1::JobSpec& job) {
  constexpr int64_t kEnoughGroups = 8;
  const int64_t groups = job.model().config().num_key_value_heads() /
                         std::max<int64_t>(1, job.parallelism().tensor_parallel_size());
  return job.training().micro_batch_size() * groups < kEnoughGroups ? 16ull << 20 : 0;
}

// A product of [m, k] by [k, n] in panels of 32 (runtime/kernels/cpu/tile_product.cc): one operand
// whole, of the other eight panels a thread, and their sums.
uint64_t PanelBytes(int64_t m, int64_t n, int64_t k, int64_t threads) {
  const int64_t shared = Padded(m > 2 * n ? n : m, 32), depth = Padded(k, 32);
  return static_cast<uint64_t>(2 * shared * depth + 8 * threads * (64 * depth + 4096) + 64);
}

// The most that the fastest way of any product takes: in bf16 panels, for the head's input-grad
// beside its sums in f32; in f32 oneDNN's copy of an operand.
uint64_t ProductBytes(const v1::JobSpec& job, int64_t threads) {
  const v1::ModelConfig& config = job.model().config();
  const int64_t rows = job.training().micro_batch_size() * job.data().sequence_length();
  const int64_t width = config.hidden_size();
  const int64_t packed =
      (config.num_attention_heads() + 2 * config.num_key_value_heads()) * config.head_dim();
  const int64_t tensor = std::max<int64_t>(1, job.parallelism().tensor_parallel_size());
  const int64_t inner = (std::max(packed, config.intermediate_size()) + tensor - 1) / tensor;
  if (ComputeDType(job) != tensor::DType::kBf16) {
    return static_cast<uint64_t>(std::max(rows * std::max(width, inner), width * inner)) *
           sizeof(float);
  }
  constexpr int64_t kHeadColumns = 2048;
  return std::max({PanelBytes(rows, inner, width, threads), PanelBytes(rows, width, inner, threads),
                   PanelBytes(width, inner, rows, threads), PanelBytes(inner, width, rows, threads),
                   PanelBytes(rows, width, kHeadColumns, threads) +
                       static_cast<uint64_t>(rows * width) * sizeof(float)});
}

}  // namespace

uint64_t ScratchBytes(const v1::JobSpec& job) {
  if (job.runtime().kernels() == "reference") return 0;
  const int64_t open = std::max<int64_t>(kUsualThreads, job.resources().cpus_per_rank());
  const int64_t threads = job.runtime().threads() > 0 ? job.runtime().threads() : open;
  const uint64_t thread = AttentionThreadBytes(job);
  const uint64_t threaded = std::min(static_cast<uint64_t>(threads) * thread, kMostThreadedBytes);
  const uint64_t products =
      std::clamp(ProductBytes(job, threads), kLeastProductBytes, kMostProductBytes);
  return LineUp(std::max(products, std::max(thread, threaded) + AttentionShareBytes(job)));
}

v1::JobSpec ForThreads(v1::JobSpec job, int threads) {
  if (job.runtime().threads() == 0 && threads > kUsualThreads) {
    job.mutable_runtime()->set_threads(threads);
  }
  return job;
}

void SlotBytes::Raise(const graph::StageOps& ops) {
  const auto raise = [](uint64_t& bytes, int64_t needed) {
    bytes = std::max(bytes, static_cast<uint64_t>(needed));
  };
  raise(activation, ops.activation_bytes);
  raise(stash, ops.stash_bytes);
  raise(gradient_stash, ops.gradient_stash_bytes);
  raise(boundary, ops.boundary_bytes);
  raise(temporary, ops.temporary_bytes);
}

v1::PoolKind PoolKindOf(graph::BufferPool pool) {
  switch (pool) {
    case graph::BufferPool::kInput:
      return v1::INPUT;
    case graph::BufferPool::kOutput:
      return v1::OUTPUT;
    case graph::BufferPool::kGradientIn:
      return v1::GRADIENT_IN;
    case graph::BufferPool::kGradientOut:
      return v1::GRADIENT_OUT;
    case graph::BufferPool::kActivation:
      return v1::ACTIVATION;
    case graph::BufferPool::kStash:
      return v1::STASH;
    case graph::BufferPool::kGradientStash:
      return v1::GRADIENT_STASH;
    case graph::BufferPool::kTemporary:
      return v1::TEMPORARY;
  }
  TRIREME_CHECK(false);
}

void PlanMemory(const v1::Plan& plan, v1::StagePlan& stage, const std::vector<SlotBytes>& bytes,
                const std::vector<SlotCounts>& slots, const StateLayout& state,
                const BucketElements& at_hand) {
  const uint64_t rows = static_cast<uint64_t>(plan.job().training().micro_batch_size()) *
                        static_cast<uint64_t>(plan.job().data().sequence_length());
  PoolList pools(stage);
  for (const v1::PoolKind kind :
       {v1::PARAMETER, v1::MASTER, v1::GRADIENT, v1::MOMENT1, v1::MOMENT2}) {
    const v1::PoolPlace place = PlaceOf(plan, kind);
    pools.Add(kind, 0, StateBytes(plan, state, kind),
              place == v1::SNAPSHOT ? plan.snapshot_slots() : 1, place);
  }
  if (OffloadsState(plan.job())) {
    const size_t pieces = PiecesOf(plan, state.buckets).size();
    const auto elements = static_cast<uint64_t>(PieceElements(plan, state.buckets));
    pools.Add(v1::UPDATE, 0, elements * UpdateBytes(plan.job()),
              static_cast<uint32_t>(std::min<size_t>(kUpdateSlots, pieces)));
  }
  for (const auto& [kind, elements] :
       {std::pair(v1::GATHERED, at_hand.gathered), std::pair(v1::PARTIAL, at_hand.partial)}) {
    const size_t width = tensor::SizeOf(StateDType(ComputeDType(plan.job()), kind));
    pools.Add(kind, 0, static_cast<uint64_t>(elements) * width, 1);
  }
  // Stages between the embedding and the head read none.
  const auto blocks = static_cast<uint32_t>(plan.job().model().config().num_hidden_layers()) + 2;
  const bool reads = *stage.first_block().begin() == 0 || *stage.end_block().rbegin() == blocks;
  pools.Add(v1::TOKENS, 0, LineUp(rows * 2 * sizeof(int32_t)),
            reads ? std::max(plan.micro_batches(), plan.evaluation_micro_batches()) : 0);
  uint64_t temporary = 0;
  for (uint32_t index = 0; index < bytes.size(); ++index) {
    const SlotBytes& slot = bytes[index];
    const SlotCounts& count = slots[index];
    const uint64_t boundary = LineUp(slot.boundary);
    pools.Add(v1::ACTIVATION, index, slot.activation, count.activation);
    pools.Add(v1::STASH, index, slot.stash, count.stash);
    if (OffloadsActivations(plan.job()) && count.stored > 0) {
      pools.Add(v1::STORED, index, slot.activation + slot.stash, count.stored,
                PlaceOf(plan.job(), v1::STORED));
    }
    pools.Add(v1::GRADIENT_STASH, index, slot.gradient_stash, count.gradient_stash);
    pools.Add(v1::INPUT, index, boundary, count.input);
    pools.Add(v1::OUTPUT, index, boundary, count.output);
    pools.Add(v1::GRADIENT_IN, index, boundary, count.gradient_in);
    pools.Add(v1::GRADIENT_OUT, index, boundary, count.gradient_out);
    temporary = std::max(temporary, slot.temporary);
  }
  pools.Add(v1::TEMPORARY, 0, temporary, 1);
  pools.Add(v1::SCRATCH, 0, ScratchBytes(plan.job()), 1);
  pools.Add(v1::SCALARS, 0, kScalarBytes, 1);
}

}  // namespace trireme::plan
