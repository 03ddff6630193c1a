// TrainingState: parameters, gradients, masters and moments of one rank in the flat pools; who owns
// which part; initial values, global norm and optimizer update over the owned parts. It is on the
// rank's device: what reads or writes it runs inside a task of a stream of that (Engine::OnDevice).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/arena.h"
#include "runtime/engine/snapshot_keeper.h"
#include "runtime/engine/state_slots.h"
#include "runtime/graph/graph.h"
#include "runtime/layout/layout.h"
#include "runtime/optim/adamw.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/state_layout.h"
#include "runtime/tensor/device.h"
#include "runtime/tensor/dtype.h"

namespace trireme::engine {

// A piece of a logical tensor of the training state in this rank's arena.
struct StateView {
  std::string name;  // logical tensor, Hugging Face name
  std::string kind;  // parameter, gradient, moment1, moment2
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;  // of the logical tensor
  layout::Shard shard;
  tensor::DevicePointer data;  // shard.elements() elements, contiguous

  size_t size_bytes() const {
    return static_cast<size_t>(shard.elements()) * tensor::SizeOf(dtype);
  }
};

// Where operators find weights and leave gradients: the pools, and by parameter the element in them
// at which it begins, -1 for parameters of other stages.
struct WorkingPlaces {
  v1::PoolKind weight_pool = v1::PARAMETER, gradient_pool = v1::GRADIENT;
  std::vector<int64_t> weights, gradients;
};

// Element of `pool`, one of a WorkingPlaces, at which the bucket begins.
int64_t WorkingBegin(v1::PoolKind pool, const v1::Bucket& bucket);

// Elements of a bucket that one STEP updates, counted in the flat pools of optimizer state, and
// where that state of the first of them is: its pools, or a slot of UPDATE. With snapshot slots
// also where it goes.
struct UpdateRoom {
  uint32_t bucket = 0;
  layout::Interval elements;
  tensor::DevicePointer moment1, moment2, master;
  tensor::DevicePointer next_moment1, next_moment2, next_master;
};

// Bytes that lie in the arena while they are used, and elsewhere at other times.
struct SwapCopy {
  tensor::DevicePointer arena, home;
  size_t bytes = 0;
};
// Of one piece of optimizer state; those of no bytes are none.
using SwapCopies = std::array<SwapCopy, 3>;

class TrainingState {
 public:
  // `arena` may be mapped later: until then only SnapshotParts is of use.
  TrainingState(const v1::Plan& plan, const graph::ModelGraph& graph, const plan::Coordinates& at,
                plan::StateLayout layout, const Arena& arena);
  // FailedPrecondition where the plan of this pipeline coordinate speaks of other buckets, or has
  // less room than they ask for.
  absl::Status CheckPlanned(const v1::Plan& plan, uint32_t pipeline) const;

  // The next ones inside a task.
  // Initial weights from (seed, name, global index): the same in every layout. Moments and
  // gradients are zeroed.
  void Initialize(uint64_t seed, int threads) const;
  // The weights of what this rank updates are the masters, rounded. Needs masters.
  void DeriveWeights() const;
  // Sum of squares of the owned parts of the gradients, in f64.
  double OwnedSumOfSquares(int threads) const;
  // AdamW on the elements of `room` that this rank updates; `between` is called after each of them
  // and, in large ones, about every millisecond.
  void Update(const UpdateRoom& room, const optim::AdamWOptions& options,
              const std::function<void()>& between) const;
  // Of a STEP.
  UpdateRoom RoomOf(const v1::Instruction& step) const;
  // What a SWAP_OUT or SWAP_IN of UPDATE moves.
  SwapCopies SwapsOf(const v1::Instruction& swap) const;
  // Name of the first parameter with a NaN or Inf in its owned gradient; empty: none.
  std::string FirstNonFinite() const;

  // Steps left out so far (training.nonfinite_policy skip): AdamW's bias correction counts the
  // updates that were applied. Part of the state, so a resume must set it.
  int64_t skipped_steps() const { return skipped_steps_; }
  void set_skipped_steps(int64_t steps) { skipped_steps_ = steps; }
  // Where the gradient of a parameter lies in its bucket: this rank's part as `rows` of `columns`
  // elements, one after the other; a vector is one row.
  struct GradientPlace {
    uint32_t bucket = 0;
    int64_t begin = 0;  // elements, from the bucket's first
    int64_t rows = 1;
    int64_t columns = 0;
    bool matrix = false;
  };
  // In order of buckets and of elements.
  const std::vector<GradientPlace>& gradients() const { return gradients_; }
  // Adds the second moment, as far as this rank updates it, to the sums of rows and of columns.
  // Sizes are those of the place; f32 states only. Inside a task.
  void AddMoment2(size_t gradient, std::span<double> rows, std::span<double> columns) const;

  // A parameter as far as this rank holds it: the same bytes on every rank that holds the same
  // part.
  struct HeldParameter {
    graph::ParameterId id = graph::kNone;
    bool whole = false;  // not cut over the tensor axis: each tensor rank holds it
    bool tied = false;   // held by the first and by the last stage
    tensor::DevicePointer data;
    std::span<const std::byte> bytes;  // of it, to be read inside a task
  };
  size_t held_parameters() const { return pieces_.size(); }
  // In the order of the flat pools, which is that of all ranks of the pipeline coordinate.
  HeldParameter held_parameter(size_t index) const;

  // What this rank alone is responsible for saving: over all ranks, every element exactly once.
  // kind: as in StateView. Parameters are the masters where there are such.
  std::vector<StateView> Owned(const std::string& kind) const;
  // Everything of a kind this rank keeps: what a restore must fill. Parameters: the weights, and
  // the masters where there are such; the weights are these rounded.
  std::vector<StateView> Held(const std::string& kind) const;

  // What this rank updates, and so what a snapshot slot of `stage`, its plan's, holds.
  std::vector<SnapshotPart> SnapshotParts(const v1::StagePlan& stage) const;

  // Which slot of optimizer state is the state; the views and places above and below are of that
  // one as they are asked for, and a step makes another one it.
  StateSlots& slots() const { return *slots_; }
  // Element `offset` of a flat pool, and what its elements are.
  tensor::DevicePointer Flat(v1::PoolKind pool, int64_t offset) const;
  const std::vector<v1::Bucket>& buckets() const { return layout_.buckets; }
  WorkingPlaces working_places() const;
  // Zeroes what no parameter of this rank fills in the bucket's place in PARTIAL, where other
  // buckets have been. Inside a task.
  void ClearGaps(uint32_t bucket) const;
  tensor::DType dtype(v1::PoolKind pool) const { return plan::StateDType(compute_, pool); }

 private:
  struct Piece {
    const graph::Parameter* parameter = nullptr;
    plan::StatePlace place;
    layout::Box box;
    int64_t length = 0;             // elements of box
    layout::Interval updated = {};  // of [0, length): what this rank's optimizer updates
    layout::Interval owned = {};    // of [0, length): what this rank alone answers for
    int64_t share_offset = 0;       // of element updated.begin, in the pools of shares
  };
  bool HasMasters() const { return plan::HasMasters(plan_); }
  // Of a pool with slots: the same in the slot that is written.
  tensor::DevicePointer NextFlat(v1::PoolKind pool, int64_t offset) const;
  // Element `index` of a piece, as far as the pool has it.
  tensor::DevicePointer At(v1::PoolKind pool, const Piece& piece, int64_t index) const;
  layout::Interval HeldOf(v1::PoolKind pool, const Piece& piece) const;
  StateView View(const Piece& piece, v1::PoolKind pool, const layout::Interval& interval) const;
  // After a look at elements of a piece where they lie (Arena::LetGo).
  void LetGo(v1::PoolKind pool, const Piece& piece, const layout::Interval& elements) const;
  void Clear(tensor::DevicePointer begin, size_t bytes) const;
  void InitializePiece(const Piece& piece, uint64_t seed) const;
  void UpdatePiece(const Piece& piece, const UpdateRoom& room, const optim::AdamWOptions& options,
                   const std::function<void()>& between) const;
  // From slot to slot: elements of the room, from its `offset`-th on, one for each gradient.
  template <typename T>
  void UpdateToSlot(const UpdateRoom& room, int64_t offset, std::span<const T> gradient,
                    tensor::DevicePointer weights, const optim::AdamWOptions& options) const;
  // Element `index` of a piece, counted in a flat pool.
  int64_t FlatIndex(v1::PoolKind pool, const Piece& piece, int64_t index) const;

  const Arena& arena_;
  const tensor::DType compute_;
  const v1::Plan& plan_;
  const bool sharded_;             // by ZeRO: each replica updates its share
  const graph::ParameterId tied_;  // kNone: no parameter is on two stages
  plan::StateLayout layout_;
  const int64_t piece_elements_;  // of offloaded optimizer state; 0: none
  std::vector<Piece> pieces_;
  std::vector<GradientPlace> gradients_;
  std::vector<size_t> piece_of_gradient_;
  int64_t skipped_steps_ = 0;
  const std::unique_ptr<StateSlots> slots_;  // which is the state changes, what it is of does not
};

}  // namespace trireme::engine
