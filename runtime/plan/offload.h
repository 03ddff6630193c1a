// What lies outside of the arena while it is not used (job.offload), and the pieces in which
// optimizer state comes and goes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/plan/schedule.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Pieces of optimizer state that are at hand: one is updated, two come, one goes.
constexpr uint32_t kUpdateSlots = 4;
// Of a stage, and of all of them beside a bucket's first: each is five instructions, of a plan that
// one machine makes for all ranks.
constexpr int64_t kMostPieces = 1 << 14, kMostFurtherPieces = 1 << 18;

// Compute instructions from a forward to its backward, up to which activations stay: one of them
// goes beside the first, and comes beside the last.
constexpr size_t kNearBackward = 3;

// Where the job wants a pool.
v1::PoolPlace PlaceOf(const v1::JobSpec& job, v1::PoolKind kind);
// Where the plan has it: state that has snapshot slots is in these.
v1::PoolPlace PlaceOf(const v1::Plan& plan, v1::PoolKind kind);
bool OffloadsState(const v1::JobSpec& job);
bool OffloadsActivations(const v1::JobSpec& job);
// Whether any backward is farther behind its forward than kNearBackward: where none is, activations
// stay whatever the job wants.
bool HasFarBackwards(std::string_view schedule, const ScheduleOptions& options);
// Whether activations go out in a plan's step.
bool MovesActivations(const v1::Plan& plan);

// The pools of which a slot of UPDATE holds a piece, in this order.
std::vector<v1::PoolKind> UpdatedPools(const v1::JobSpec& job);
// Of one element in all of them.
uint64_t UpdateBytes(const v1::JobSpec& job);

// Of one bucket, in the flat pools of optimizer state: elements [begin, begin + count).
struct StatePiece {
  uint32_t bucket = 0;
  uint32_t piece = 0;  // from 0 in each bucket
  int64_t begin = 0, count = 0;
};
// Elements of the largest piece: what the job asks for, or else a 64th of what the rank has (64 KiB
// to 32 MiB); less where a bucket's largest share is less, or a quarter of all, so that slots of
// UPDATE never take more than what they spare.
int64_t PieceElements(const v1::Plan& plan, const std::vector<v1::Bucket>& buckets);
// How a plan that offloads optimizer state cuts it.
struct StateCut {
  uint64_t piece_bytes = 0;  // of the largest piece
  bool saves = false;  // whether of any stage the pieces at hand are not (nearly) all of the state
  int64_t better_piece_bytes = 0;  // where none saves: what would; 0: nothing, so small is it
};
StateCut StateCutOf(const v1::Plan& plan);
// In the order of STEPs; empty where the state stays in the arena.
std::vector<StatePiece> PiecesOf(const v1::Plan& plan, const std::vector<v1::Bucket>& buckets);
// For a plan whose stages have their buckets: InvalidArgument where there would be too many pieces,
// with the size that makes fewer.
absl::Status CheckPieces(const v1::Plan& plan);
// Of one of them, by number.
StatePiece PieceOf(const v1::Plan& plan, const v1::Bucket& bucket, uint32_t index, uint32_t piece,
                   int64_t elements);

// Of a snapshot (docs/formats/snapshot.md): pools begin on boundaries of pieces, slots of all pools
// on those of huge pages.
constexpr uint64_t kSnapshotPieceBytes = 64 << 10, kSnapshotUnitBytes = 2 << 20;
constexpr uint32_t kLeastSnapshotSlots = 2, kMostSnapshotSlots = 8;
// That the job asks for; 0: none, the state is updated in place.
uint32_t SnapshotSlotsOf(const v1::JobSpec& job);
// From a slot of the place SNAPSHOT to the next; 0: the plan has none.
uint64_t SnapshotSlotBytes(const v1::Plan& plan, const v1::StagePlan& stage);
// InvalidArgument where the plan's number of slots is none, or the job has state elsewhere.
absl::Status CheckSnapshotSlots(const v1::Plan& plan);

// Memory that a rank of the stage takes of its machine: all but the file.
uint64_t MemoryBytes(const v1::StagePlan& stage);

}  // namespace trireme::plan
