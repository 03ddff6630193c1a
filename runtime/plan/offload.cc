#include "runtime/plan/offload.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/state_layout.h"
#include "runtime/tensor/dtype.h"

namespace trireme::plan {

namespace {

v1::PoolPlace PlaceNamed(const std::string& name) {
  return name == "host" ? v1::HOST : name == "file" ? v1::FILE : v1::ARENA;
}

// Of a piece, in bytes, where the job says nothing: large enough for a disk to read at its speed,
// and small beside the state.
constexpr int64_t kPiecesOfState = 64, kLeastPieceBytes = 64 << 10, kMostPieceBytes = 32 << 20;
constexpr int64_t kLeastGivenPieceBytes = 1024;  // that the rules take

// What a replica updates of a bucket, in the flat pools of optimizer state.
struct Share {
  int64_t begin = 0, count = 0;
};

Share ShareOf(const v1::Plan& plan, const v1::Bucket& bucket) {
  const int64_t parts = IsSharded(plan, v1::MOMENT1) ? plan.mesh().data() : 1;
  return {.begin = static_cast<int64_t>(bucket.offset()) / parts,
          .count = static_cast<int64_t>(bucket.count()) / parts};
}

}  // namespace

v1::PoolPlace PlaceOf(const v1::JobSpec& job, v1::PoolKind kind) {
  switch (kind) {
    case v1::MOMENT1:
    case v1::MOMENT2:
    case v1::MASTER:
      return PlaceNamed(job.offload().optimizer_state());
    case v1::STORED:
      return PlaceNamed(job.offload().activations());
    default:
      return v1::ARENA;
  }
}

v1::PoolPlace PlaceOf(const v1::Plan& plan, v1::PoolKind kind) {
  const bool is_state = kind == v1::MASTER || kind == v1::MOMENT1 || kind == v1::MOMENT2;
  return is_state && plan.snapshot_slots() > 0 ? v1::SNAPSHOT : PlaceOf(plan.job(), kind);
}

bool OffloadsState(const v1::JobSpec& job) { return PlaceOf(job, v1::MOMENT1) != v1::ARENA; }
bool OffloadsActivations(const v1::JobSpec& job) { return PlaceOf(job, v1::STORED) != v1::ARENA; }

bool HasFarBackwards(std::string_view schedule, const ScheduleOptions& options) {
  const absl::StatusOr<ComputeOrder> order = GenerateSchedule(schedule, options);
  if (!order.ok()) return false;
  for (const std::vector<ComputeStep>& steps : *order) {
    std::map<std::pair<uint32_t, uint32_t>, size_t> forward_at;
    for (size_t position = 0; position < steps.size(); ++position) {
      const ComputeStep& step = steps[position];
      const std::pair cell(step.virtual_stage, step.micro_batch);
      if (step.kind == Compute::kForward) forward_at[cell] = position;
      const bool is_backward = step.kind == Compute::kInputGrad || step.kind == Compute::kBackward;
      if (is_backward && position > forward_at[cell] + kNearBackward) return true;
    }
  }
  return false;
}

bool MovesActivations(const v1::Plan& plan) {
  for (const v1::StagePlan& stage : plan.stages()) {
    for (const v1::Pool& pool : stage.pools()) {
      if (pool.kind() == v1::STORED && pool.slots() > 0) return true;
    }
  }
  return false;
}

std::vector<v1::PoolKind> UpdatedPools(const v1::JobSpec& job) {
  std::vector<v1::PoolKind> pools = {v1::MOMENT1, v1::MOMENT2};
  if (ComputeDType(job) == tensor::DType::kBf16) pools.push_back(v1::MASTER);
  return pools;
}

uint64_t UpdateBytes(const v1::JobSpec& job) {
  uint64_t bytes = 0;
  for (const v1::PoolKind kind : UpdatedPools(job)) {
    bytes += tensor::SizeOf(StateDType(ComputeDType(job), kind));
  }
  return bytes;
}

int64_t PieceElements(const v1::Plan& plan, const std::vector<v1::Bucket>& buckets) {
  const auto width = static_cast<int64_t>(UpdateBytes(plan.job()));
  int64_t largest = 0, all = 0;
  for (const v1::Bucket& bucket : buckets) {
    const int64_t count = ShareOf(plan, bucket).count;
    largest = std::max(largest, count);
    all += count;
  }
  int64_t bytes = plan.job().offload().piece_bytes();
  if (bytes == 0) {
    bytes = std::clamp(all * width / kPiecesOfState, kLeastPieceBytes, kMostPieceBytes);
    // Each bucket has one that is not full.
    bytes = std::max(bytes, all * width / (kMostPieces / 2));
  }
  const int64_t elements = std::min({bytes / width, largest, all / kUpdateSlots});
  return std::max(kZeroAlignment, elements / kZeroAlignment * kZeroAlignment);
}

StateCut StateCutOf(const v1::Plan& plan) {
  StateCut cut;
  // Pieces of a quarter each are cut at cache lines, so that a few elements may make a fifth.
  const uint64_t rounding = kUpdateSlots * kZeroAlignment * UpdateBytes(plan.job());
  uint64_t most = 0;
  for (const v1::StagePlan& stage : plan.stages()) {
    uint64_t state = 0, at_hand = 0;
    for (const v1::Pool& pool : stage.pools()) {
      const uint64_t bytes = pool.slot_bytes() * pool.slots();
      if (pool.kind() == v1::UPDATE) {
        at_hand = bytes;
        cut.piece_bytes = std::max(cut.piece_bytes, pool.slot_bytes());
      } else if (pool.kind() == v1::MOMENT1 || pool.kind() == v1::MOMENT2 ||
                 pool.kind() == v1::MASTER) {
        state += bytes;
      }
    }
    cut.saves = cut.saves || at_hand + rounding < state;
    most = std::max(most, state);
  }
  const auto better = std::max(static_cast<int64_t>(most) / kPiecesOfState, kLeastGivenPieceBytes);
  if (!cut.saves && kUpdateSlots * static_cast<uint64_t>(better) + rounding < most) {
    cut.better_piece_bytes = better;
  }
  return cut;
}

StatePiece PieceOf(const v1::Plan& plan, const v1::Bucket& bucket, uint32_t index, uint32_t piece,
                   int64_t elements) {
  const Share share = ShareOf(plan, bucket);
  const int64_t begin = std::min(share.count, int64_t{piece} * elements);
  return {.bucket = index,
          .piece = piece,
          .begin = share.begin + begin,
          .count = std::min(elements, share.count - begin)};
}

std::vector<StatePiece> PiecesOf(const v1::Plan& plan, const std::vector<v1::Bucket>& buckets) {
  std::vector<StatePiece> pieces;
  if (!OffloadsState(plan.job())) return pieces;
  const int64_t elements = PieceElements(plan, buckets);
  for (uint32_t index = 0; index < buckets.size(); ++index) {
    for (uint32_t piece = 0;; ++piece) {
      const StatePiece next = PieceOf(plan, buckets[index], index, piece, elements);
      if (next.count == 0) break;
      pieces.push_back(next);
    }
  }
  return pieces;
}

absl::Status CheckPieces(const v1::Plan& plan) {
  if (!OffloadsState(plan.job())) return absl::OkStatus();
  int64_t most_of_stage = 0, largest = 0, further = 0, all = 0;
  for (const v1::StagePlan& stage : plan.stages()) {
    const std::vector<v1::Bucket> buckets(stage.buckets().begin(), stage.buckets().end());
    const int64_t elements = PieceElements(plan, buckets);
    int64_t pieces = 0, own = 0;
    for (const v1::Bucket& bucket : buckets) {
      const int64_t count = ShareOf(plan, bucket).count;
      pieces += (count + elements - 1) / elements;
      own += count;
    }
    most_of_stage = std::max(most_of_stage, pieces);
    largest = std::max(largest, own);
    further += pieces - stage.buckets_size();
    all += own;
  }
  const bool is_long = most_of_stage > kMostPieces;
  if (!is_long && further <= kMostFurtherPieces) return absl::OkStatus();
  // Each bucket has one that is not full; pieces are cut at cache lines.
  const int64_t enough =
      std::max(largest / (kMostPieces / 2), all / kMostFurtherPieces) + 2 * kZeroAlignment;
  return absl::InvalidArgumentError(absl::StrCat(
      "offload.piece_bytes: ", plan.job().offload().piece_bytes(), " cuts the optimizer state of ",
      is_long ? "a rank into " : "all stages into ", is_long ? most_of_stage : further, " pieces",
      is_long ? "" : " beside each bucket's first", ", expected at most ",
      is_long ? kMostPieces : kMostFurtherPieces, "; use ",
      enough * static_cast<int64_t>(UpdateBytes(plan.job())), " or more"));
}

uint32_t SnapshotSlotsOf(const v1::JobSpec& job) {
  return job.snapshots().every_step() ? kLeastSnapshotSlots : 0;
}

uint64_t SnapshotSlotBytes(const v1::Plan& plan, const v1::StagePlan& stage) {
  return plan.snapshot_slots() == 0 ? 0 : stage.snapshot_bytes() / plan.snapshot_slots();
}

absl::Status CheckSnapshotSlots(const v1::Plan& plan) {
  const uint32_t slots = plan.snapshot_slots();
  if (slots == 0) return absl::OkStatus();
  if (slots < kLeastSnapshotSlots || slots > kMostSnapshotSlots) {
    return absl::InvalidArgumentError(absl::StrCat("snapshot slots: ", slots,
                                                   ", expected 0 or from ", kLeastSnapshotSlots,
                                                   " to ", kMostSnapshotSlots));
  }
  if (!OffloadsState(plan.job())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("offload.optimizer_state: ", plan.job().offload().optimizer_state(),
                   ", but the plan has snapshot slots, where the state is; use none"));
}

uint64_t MemoryBytes(const v1::StagePlan& stage) {
  return stage.arena_bytes() + stage.host_bytes() + stage.snapshot_bytes();
}

}  // namespace trireme::plan
