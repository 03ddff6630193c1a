#include "runtime/engine/training_state.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/engine/mutation.h"
#include "runtime/optim/adamw_slots.h"
#include "runtime/plan/offload.h"
#include "runtime/tensor/bf16.h"
#include "runtime/tensor/element.h"

namespace trireme::engine {

using tensor::DType;

namespace {

// Updated between two looks at transfers in flight: 28 bytes each, so a millisecond at 7 GB/s. Cuts
// never change a bit.
constexpr int64_t kUpdateElements = int64_t{1} << 18;

// Of what may lie in a file, all of it f32, looked at before it is let go of.
constexpr int64_t kPassElements = Arena::kPassBytes / sizeof(float);

constexpr v1::PoolKind kPools[] = {v1::PARAMETER, v1::MASTER, v1::GRADIENT, v1::MOMENT1,
                                   v1::MOMENT2};

v1::PoolKind PoolOf(const std::string& kind) {
  if (kind == "parameter") return v1::PARAMETER;
  if (kind == "gradient") return v1::GRADIENT;
  TRIREME_CHECK(kind == "moment1" || kind == "moment2");
  return kind == "moment1" ? v1::MOMENT1 : v1::MOMENT2;
}

std::string KindOf(v1::PoolKind pool) {
  if (pool == v1::PARAMETER || pool == v1::MASTER) return "parameter";
  return pool == v1::GRADIENT ? "gradient" : pool == v1::MOMENT1 ? "moment1" : "moment2";
}

struct MasterSpans {
  uint32_t bucket = 0;
  std::span<float> master;
  std::span<const float> gradient;
  std::span<float> moment1, moment2;
  std::span<tensor::BFloat16> weight;
};

void UpdateMasters(const MasterSpans& state, const optim::AdamWOptions& options) {
  const bool unwritten = Mutated(Mutation::kWeightNotWritten, state.bucket);
  std::vector<tensor::BFloat16> unused(unwritten ? state.weight.size() : 0);
  if (Mutated(Mutation::kMasterNotUpdated, state.bucket)) {
    std::transform(state.weight.begin(), state.weight.end(), state.master.begin(),
                   [](tensor::BFloat16 weight) { return static_cast<float>(weight); });
  }
  optim::AdamW(state.master, state.gradient, state.moment1, state.moment2,
               unused.empty() ? state.weight : std::span(unused), options);
  if (!Mutated(Mutation::kBf16Moment, state.bucket)) return;
  for (float& moment : state.moment1) moment = static_cast<float>(tensor::BFloat16(moment));
}

// Calls work(values) with the elements as what they are, f64 or f32.
template <typename Work>
auto WithReals(DType dtype, tensor::DevicePointer data, size_t count, Work work) {
  if (dtype == DType::kF64) return work(std::span(data.as<double>(), count));
  TRIREME_CHECK(dtype == DType::kF32);
  return work(std::span(data.as<float>(), count));
}

}  // namespace

TrainingState::TrainingState(const v1::Plan& plan, const graph::ModelGraph& graph,
                             const plan::Coordinates& at, plan::StateLayout layout,
                             const Arena& arena)
    : arena_(arena),
      compute_(plan::ComputeDType(plan.job())),
      plan_(plan),
      sharded_(plan::ZeroStage(plan) > 0),
      tied_(plan.mesh().pipeline() > 1 ? graph.tied : graph::kNone),
      layout_(std::move(layout)),
      piece_elements_(plan::OffloadsState(plan.job()) ? plan::PieceElements(plan, layout_.buckets)
                                                      : 0),
      slots_(std::make_unique<StateSlots>(plan, at.pipeline)) {
  const int64_t data_size = plan.mesh().data();
  const auto& planned = plan.stages(static_cast<int>(at.pipeline)).buckets();
  for (int index = 0; index < std::min<int>(planned.size(), std::ssize(layout_.buckets)); ++index) {
    v1::Bucket& bucket = layout_.buckets[static_cast<size_t>(index)];
    bucket.set_gathered_offset(planned[index].gathered_offset());
    bucket.set_partial_offset(planned[index].partial_offset());
  }
  for (const plan::StatePlace& place : layout_.places) {
    const graph::Parameter& parameter = graph.parameters[place.parameter];
    const v1::Bucket& bucket = layout_.buckets[place.bucket];
    Piece piece{.parameter = &parameter,
                .place = place,
                .box = parameter.LocalBox(plan.mesh().tensor(), at.tensor)};
    piece.length = piece.box.elements();
    const layout::Interval share =
        plan::OwnedInterval(bucket, place.offset, piece.length, data_size, at.data);
    piece.updated = sharded_ ? share : layout::Interval{0, piece.length};
    const bool replicated = parameter.shard_dim == graph::kNone && at.tensor > 0 &&
                            !Mutated(Mutation::kReplicatedNormCounted);
    const bool copied = place.tied_copy && !Mutated(Mutation::kTiedCopyCounted);
    piece.owned = replicated || copied ? layout::Interval{0, 0} : share;
    piece.share_offset = place.offset + piece.updated.begin;
    if (sharded_) {
      const int64_t count = static_cast<int64_t>(bucket.count()) / data_size;
      const int64_t begin = static_cast<int64_t>(bucket.offset());
      piece.share_offset += begin / data_size - (begin + count * at.data);
    }
    if (piece.length > 0) {
      const int64_t columns = piece.box.dims.back().size();
      gradients_.push_back({.bucket = place.bucket,
                            .begin = place.offset - static_cast<int64_t>(bucket.offset()),
                            .rows = piece.length / columns,
                            .columns = columns,
                            .matrix = parameter.shape.size() >= 2});
      piece_of_gradient_.push_back(pieces_.size());
    }
    pieces_.push_back(std::move(piece));
  }
}

// Whoever made the plan may count buckets otherwise, and instructions name them by number.
absl::Status TrainingState::CheckPlanned(const v1::Plan& plan, uint32_t pipeline) const {
  const v1::StagePlan& stage = plan.stages(static_cast<int>(pipeline));
  const auto differ = [](const std::string& what) {
    return absl::FailedPreconditionError(
        absl::StrCat(what,
                     " derived here differ from the plan's: planner and worker are of "
                     "different versions"));
  };
  const bool same_buckets =
      std::equal(layout_.buckets.begin(), layout_.buckets.end(), stage.buckets().begin(),
                 stage.buckets().end(), [](const v1::Bucket& own, const v1::Bucket& planned) {
                   return own.SerializeAsString() == planned.SerializeAsString();
                 });
  if (!same_buckets) return differ("the buckets of gradients");
  for (const v1::PoolKind pool : kPools) {
    if (arena_.SlotBytes(pool, 0) < plan::StateBytes(plan, layout_, pool)) {
      return differ(absl::StrCat("the bytes of the pool ", v1::PoolKind_Name(pool)));
    }
  }
  if (piece_elements_ > 0 &&
      arena_.SlotBytes(v1::UPDATE, 0) !=
          static_cast<uint64_t>(piece_elements_) * plan::UpdateBytes(plan.job())) {
    return differ("the pieces of offloaded optimizer state");
  }
  const bool gathers = plan::IsSharded(plan, v1::PARAMETER);
  const bool reduces = plan::IsSharded(plan, v1::GRADIENT);
  for (const v1::Bucket& bucket : layout_.buckets) {
    for (const v1::PoolKind pool : {v1::GATHERED, v1::PARTIAL}) {
      if (pool == v1::GATHERED ? !gathers : !reduces) continue;
      const uint64_t room = arena_.SlotBytes(pool, 0) / tensor::SizeOf(dtype(pool));
      const auto begin = static_cast<uint64_t>(WorkingBegin(pool, bucket));
      if (begin <= room && bucket.count() <= room - begin) continue;
      return differ(absl::StrCat("the places of buckets in the pool ", v1::PoolKind_Name(pool)));
    }
  }
  return absl::OkStatus();
}

void TrainingState::AddMoment2(size_t gradient, std::span<double> rows,
                               std::span<double> columns) const {
  TRIREME_CHECK(dtype(v1::MOMENT2) == DType::kF32);
  const Piece& piece = pieces_[piece_of_gradient_[gradient]];
  const int64_t width = std::ssize(columns);
  int64_t passed = piece.updated.begin;
  for (int64_t at = piece.updated.begin; at < piece.updated.end;) {
    const int64_t row = at / width, column = at % width;
    const int64_t count = std::min(width - column, piece.updated.end - at);
    const std::span<const float> values(At(v1::MOMENT2, piece, at).as<const float>(),
                                        static_cast<size_t>(count));
    rows[static_cast<size_t>(row)] += optim::AddRow(
        values, columns.subspan(static_cast<size_t>(column), static_cast<size_t>(count)));
    at += count;
    if (at - passed < kPassElements && at < piece.updated.end) continue;
    LetGo(v1::MOMENT2, piece, {passed, at});
    passed = at;
  }
}

void TrainingState::LetGo(v1::PoolKind pool, const Piece& piece,
                          const layout::Interval& elements) const {
  if (elements.size() <= 0) return;
  arena_.LetGo(At(pool, piece, elements.begin),
               static_cast<size_t>(elements.size()) * tensor::SizeOf(dtype(pool)));
}

void TrainingState::DeriveWeights() const {
  TRIREME_CHECK(HasMasters());
  for (const Piece& piece : pieces_) {
    const auto count = static_cast<size_t>(piece.updated.size());
    if (count == 0) continue;
    const tensor::DevicePointer weights = At(v1::PARAMETER, piece, piece.updated.begin);
    WithReals(
        dtype(v1::MASTER), At(v1::MASTER, piece, piece.updated.begin), count, [&](auto masters) {
          using Real = typename decltype(masters)::value_type;
          if (compute_ != DType::kBf16) {
            std::copy(masters.begin(), masters.end(), weights.as<Real>());
            return;
          }
          std::transform(masters.begin(), masters.end(), weights.as<tensor::BFloat16>(),
                         [](Real value) { return tensor::BFloat16(static_cast<float>(value)); });
        });
  }
}

tensor::DevicePointer TrainingState::Flat(v1::PoolKind pool, int64_t offset) const {
  const uint32_t slot = StateSlots::Has(pool) ? slots_->state() : 0;
  return arena_.Slot(pool, 0, slot) + static_cast<size_t>(offset) * tensor::SizeOf(dtype(pool));
}

tensor::DevicePointer TrainingState::NextFlat(v1::PoolKind pool, int64_t offset) const {
  return arena_.Slot(pool, 0, slots_->next()) +
         static_cast<size_t>(offset) * tensor::SizeOf(dtype(pool));
}

tensor::DevicePointer TrainingState::At(v1::PoolKind pool, const Piece& piece,
                                        int64_t index) const {
  return Flat(pool, FlatIndex(pool, piece, index));
}

int64_t TrainingState::FlatIndex(v1::PoolKind pool, const Piece& piece, int64_t index) const {
  return plan::IsSharded(plan_, pool) ? piece.share_offset + index - piece.updated.begin
                                      : piece.place.offset + index;
}

UpdateRoom TrainingState::RoomOf(const v1::Instruction& step) const {
  const v1::Bucket& bucket = layout_.buckets[step.bucket()];
  const int64_t most = piece_elements_ > 0 ? piece_elements_ : static_cast<int64_t>(bucket.count());
  const plan::StatePiece piece = plan::PieceOf(plan_, bucket, step.bucket(), step.piece(), most);
  UpdateRoom room{.bucket = step.bucket(),
                  .elements = {piece.begin, piece.begin + piece.count},
                  .moment1 = Flat(v1::MOMENT1, piece.begin),
                  .moment2 = Flat(v1::MOMENT2, piece.begin)};
  if (HasMasters()) room.master = Flat(v1::MASTER, piece.begin);
  if (slots_->on()) {
    room.next_moment1 = NextFlat(v1::MOMENT1, piece.begin);
    room.next_moment2 = NextFlat(v1::MOMENT2, piece.begin);
    room.next_master = NextFlat(v1::MASTER, piece.begin);
  }
  if (piece_elements_ == 0) return room;
  // As plan::UpdatedPools has them.
  const auto bytes = static_cast<size_t>(most) * tensor::SizeOf(dtype(v1::MOMENT1));
  room.moment1 = arena_.Slot(v1::UPDATE, 0, step.update());
  room.moment2 = room.moment1 + bytes;
  if (HasMasters()) room.master = room.moment2 + bytes;
  return room;
}

SwapCopies TrainingState::SwapsOf(const v1::Instruction& swap) const {
  const UpdateRoom room = RoomOf(swap);
  const auto copy = [&](v1::PoolKind pool, tensor::DevicePointer at) {
    return SwapCopy{
        .arena = at,
        .home = Flat(pool, room.elements.begin),
        .bytes = static_cast<size_t>(room.elements.size()) * tensor::SizeOf(dtype(pool))};
  };
  SwapCopies copies = {copy(v1::MOMENT1, room.moment1), copy(v1::MOMENT2, room.moment2)};
  if (HasMasters()) copies[2] = copy(v1::MASTER, room.master);
  return copies;
}

WorkingPlaces TrainingState::working_places() const {
  const int zero = plan::ZeroStage(plan_);
  WorkingPlaces places{.weight_pool = zero >= 3 ? v1::GATHERED : v1::PARAMETER,
                       .gradient_pool = zero >= 2 ? v1::PARTIAL : v1::GRADIENT};
  for (const Piece& piece : pieces_) {
    const auto id = static_cast<size_t>(piece.place.parameter);
    if (places.weights.size() <= id) {
      places.weights.resize(id + 1, -1);
      places.gradients.resize(id + 1, -1);
    }
    const v1::Bucket& bucket = layout_.buckets[piece.place.bucket];
    const int64_t inside = piece.place.offset - static_cast<int64_t>(bucket.offset());
    places.weights[id] = WorkingBegin(places.weight_pool, bucket) + inside;
    places.gradients[id] = WorkingBegin(places.gradient_pool, bucket) + inside;
  }
  return places;
}

int64_t WorkingBegin(v1::PoolKind pool, const v1::Bucket& bucket) {
  const uint64_t begin = pool == v1::GATHERED  ? bucket.gathered_offset()
                         : pool == v1::PARTIAL ? bucket.partial_offset()
                                               : bucket.offset();
  return static_cast<int64_t>(begin);
}

void TrainingState::ClearGaps(uint32_t bucket) const {
  const v1::Bucket& shape = layout_.buckets[bucket];
  const size_t width = tensor::SizeOf(dtype(v1::PARTIAL));
  const auto begin = static_cast<int64_t>(shape.offset());
  const auto clear = [&](int64_t from, int64_t to) {
    const auto place = static_cast<int64_t>(shape.partial_offset()) + from - begin;
    std::memset(Flat(v1::PARTIAL, place).get(), 0, static_cast<size_t>(to - from) * width);
  };
  int64_t end = begin;
  for (const Piece& piece : pieces_) {
    if (piece.place.bucket != bucket) continue;
    if (Mutated(Mutation::kClearedTooEarly) && bucket == 0) continue;
    clear(end, piece.place.offset);
    end = piece.place.offset + piece.length;
  }
  clear(end, begin + static_cast<int64_t>(shape.count()));
}

// Calls fill(local index, global index, length) for the contiguous runs of a box.
template <typename Function>
static void ForEachRun(const layout::Box& box, const std::vector<int64_t>& shape, Function fill) {
  const int64_t run = box.dims.back().size();
  const int64_t runs = run == 0 ? 0 : box.elements() / run;
  for (int64_t index = 0; index < runs; ++index) {
    int64_t rest = index, global = 0, stride = shape.back();
    for (size_t dim = shape.size() - 1; dim-- > 0;) {
      const int64_t extent = box.dims[dim].size();
      global += (box.dims[dim].begin + rest % extent) * stride;
      rest /= extent;
      stride *= shape[dim];
    }
    fill(index * run, global + box.dims.back().begin, run);
  }
}

void TrainingState::InitializePiece(const Piece& piece, uint64_t seed) const {
  const graph::Parameter& parameter = *piece.parameter;
  const base::RandomSite site{seed, base::SiteOf(parameter.name), 0};
  const bool weights_sharded = plan::IsSharded(plan_, v1::PARAMETER);
  int64_t passed = piece.updated.begin;  // masters before it are let go of
  ForEachRun(piece.box, parameter.shape, [&](int64_t local, int64_t global, int64_t length) {
    for (int64_t index = local; index < local + length; ++index) {
      double value = parameter.initial == graph::Initial::kOnes ? 1.0 : 0.0;
      if (parameter.initial == graph::Initial::kNormal) {
        value = parameter.standard_deviation *
                site.Normal(static_cast<uint64_t>(global + index - local));
      }
      const bool updated = index >= piece.updated.begin && index < piece.updated.end;
      if (!weights_sharded || updated) {
        tensor::SetElement(compute_, At(v1::PARAMETER, piece, index).get(), 0, value);
      }
      if (!HasMasters() || !updated) continue;
      tensor::SetElement(dtype(v1::MASTER), At(v1::MASTER, piece, index).get(), 0, value);
    }
    const int64_t end = std::min(local + length, piece.updated.end);
    if (!HasMasters() || end - passed < kPassElements) return;
    LetGo(v1::MASTER, piece, {passed, end});
    passed = end;
  });
  if (HasMasters()) LetGo(v1::MASTER, piece, {passed, piece.updated.end});
}

void TrainingState::Clear(tensor::DevicePointer begin, size_t bytes) const {
  for (size_t at = 0; at < bytes; at += Arena::kPassBytes) {
    const size_t count = std::min(Arena::kPassBytes, bytes - at);
    std::memset((begin + at).get(), 0, count);
    arena_.LetGo(begin + at, count);
  }
}

void TrainingState::Initialize(uint64_t seed, int threads) const {
  for (const v1::PoolKind pool : kPools) {
    const uint32_t slots = StateSlots::Has(pool) && slots_->on() ? slots_->count() : 1;
    for (uint32_t slot = 0; slot < slots; ++slot) {
      Clear(arena_.Slot(pool, 0, slot), arena_.SlotBytes(pool, 0));
    }
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t index = next++; index < pieces_.size(); index = next++) {
      InitializePiece(pieces_[index], seed);
    }
  };
  std::vector<std::thread> workers;
  for (int thread = 1; thread < threads; ++thread) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
}

double TrainingState::OwnedSumOfSquares(int threads) const {
  double sum = 0;
  for (const Piece& piece : pieces_) {
    sum += WithReals(dtype(v1::GRADIENT), At(v1::GRADIENT, piece, piece.owned.begin),
                     static_cast<size_t>(piece.owned.size()), [&](auto gradient) {
                       using T = std::remove_reference_t<decltype(gradient[0])>;
                       return optim::SumOfSquares<T>(gradient, threads);
                     });
  }
  return sum;
}

void TrainingState::UpdatePiece(const Piece& piece, const UpdateRoom& room,
                                const optim::AdamWOptions& options,
                                const std::function<void()>& between) const {
  optim::AdamWOptions own = options;
  if (!piece.parameter->decay && !Mutated(Mutation::kDecayEverything)) own.weight_decay = 0;
  // Of the room, in elements of the piece.
  const int64_t first = room.elements.begin - FlatIndex(v1::MOMENT1, piece, 0);
  const int64_t begin = std::max(piece.updated.begin, first);
  const int64_t end = std::min(piece.updated.end, first + room.elements.size());
  for (int64_t at = begin; at < end; at += kUpdateElements) {
    const auto count = static_cast<size_t>(std::min(kUpdateElements, end - at));
    const tensor::DevicePointer weights = At(v1::PARAMETER, piece, at);
    WithReals(dtype(v1::GRADIENT), At(v1::GRADIENT, piece, at), count, [&](auto gradient) {
      using T = std::remove_reference_t<decltype(gradient[0])>;
      const auto state = [&](tensor::DevicePointer base) {
        return std::span<T>(base.as<T>() + (at - first), count);
      };
      if (slots_->on()) {
        UpdateToSlot<T>(room, at - first, gradient, weights, own);
        return;
      }
      if constexpr (std::is_same_v<T, float>) {
        if (HasMasters()) {
          UpdateMasters({room.bucket,
                         state(room.master),
                         gradient,
                         state(room.moment1),
                         state(room.moment2),
                         {weights.as<tensor::BFloat16>(), count}},
                        own);
          return;
        }
      }
      optim::AdamW<T>({weights.as<T>(), count}, gradient, state(room.moment1), state(room.moment2),
                      own);
    });
    between();
  }
}

template <typename T>
void TrainingState::UpdateToSlot(const UpdateRoom& room, int64_t offset,
                                 std::span<const T> gradient, tensor::DevicePointer weights,
                                 const optim::AdamWOptions& options) const {
  const size_t count = gradient.size();
  const auto state = [&](tensor::DevicePointer base) {
    return std::span<T>(base.as<T>() + offset, count);
  };
  const auto step = [&](auto weight) {
    using Weight = typename decltype(weight)::value_type;
    optim::AdamW(
        optim::SlotStep<T, Weight>{
            .from = {state(room.master), state(room.moment1), state(room.moment2)},
            .gradient = gradient,
            .to = {state(room.next_master), state(room.next_moment1), state(room.next_moment2)},
            .weight = weight,
            .first = static_cast<size_t>(room.elements.begin + offset),
            .sums = {slots_->sums(v1::MASTER), slots_->sums(v1::MOMENT1),
                     slots_->sums(v1::MOMENT2)}},
        options);
  };
  if constexpr (std::is_same_v<T, float>) {
    if (compute_ == DType::kBf16) return step(std::span(weights.as<tensor::BFloat16>(), count));
  }
  step(std::span(weights.as<T>(), count));
}

void TrainingState::Update(const UpdateRoom& room, const optim::AdamWOptions& options,
                           const std::function<void()>& between) const {
  for (const Piece& piece : pieces_) {
    if (piece.place.bucket != room.bucket || piece.updated.size() == 0) continue;
    UpdatePiece(piece, room, options, between);
  }
}

std::string TrainingState::FirstNonFinite() const {
  for (const Piece& piece : pieces_) {
    const bool finite =
        WithReals(dtype(v1::GRADIENT), At(v1::GRADIENT, piece, piece.owned.begin),
                  static_cast<size_t>(piece.owned.size()), [](auto gradient) {
                    return std::all_of(gradient.begin(), gradient.end(),
                                       [](auto value) { return std::isfinite(value); });
                  });
    if (!finite) return piece.parameter->name;
  }
  return {};
}

TrainingState::HeldParameter TrainingState::held_parameter(size_t index) const {
  const Piece& piece = pieces_[index];
  // What drifts apart shows in the masters first, where each replica updates all of them.
  const v1::PoolKind pool = HasMasters() && !sharded_ ? v1::MASTER : v1::PARAMETER;
  const layout::Interval held = HeldOf(pool, piece);
  const auto bytes = static_cast<size_t>(held.size()) * tensor::SizeOf(dtype(pool));
  const tensor::DevicePointer data = At(pool, piece, held.begin);
  return {.id = piece.place.parameter,
          .whole = piece.parameter->shard_dim == graph::kNone,
          .tied = piece.place.parameter == tied_,
          .data = data,
          .bytes = {data.get(), bytes}};
}

layout::Interval TrainingState::HeldOf(v1::PoolKind pool, const Piece& piece) const {
  return plan::IsSharded(plan_, pool) ? piece.updated : layout::Interval{0, piece.length};
}

StateView TrainingState::View(const Piece& piece, v1::PoolKind pool,
                              const layout::Interval& interval) const {
  return {.name = piece.parameter->name,
          .kind = KindOf(pool),
          .dtype = dtype(pool),
          .shape = piece.parameter->shape,
          .shard = {.box = piece.box, .interval = interval},
          .data = At(pool, piece, interval.begin)};
}

std::vector<SnapshotPart> TrainingState::SnapshotParts(const v1::StagePlan& stage) const {
  std::vector<SnapshotPart> parts;
  for (const v1::PoolKind pool : {v1::MASTER, v1::MOMENT1, v1::MOMENT2}) {
    const uint64_t begin = plan::FindPool(stage, pool, 0).offset_bytes();
    for (const Piece& piece : pieces_) {
      if (piece.updated.size() == 0) continue;
      const auto index = static_cast<uint64_t>(FlatIndex(pool, piece, piece.updated.begin));
      parts.push_back({.name = piece.parameter->name,
                       .kind = KindOf(pool),
                       .dtype = dtype(pool),
                       .shape = piece.parameter->shape,
                       .shard = {.box = piece.box, .interval = piece.updated},
                       .offset = begin + index * tensor::SizeOf(dtype(pool))});
    }
  }
  return parts;
}

std::vector<StateView> TrainingState::Owned(const std::string& kind) const {
  const v1::PoolKind named = PoolOf(kind);
  const v1::PoolKind pool = named == v1::PARAMETER && HasMasters() ? v1::MASTER : named;
  std::vector<StateView> views;
  for (const Piece& piece : pieces_) {
    if (piece.owned.size() > 0) views.push_back(View(piece, pool, piece.owned));
  }
  return views;
}

std::vector<StateView> TrainingState::Held(const std::string& kind) const {
  std::vector<v1::PoolKind> pools = {PoolOf(kind)};
  if (pools[0] == v1::PARAMETER && HasMasters()) pools.push_back(v1::MASTER);
  std::vector<StateView> views;
  for (const v1::PoolKind pool : pools) {
    for (const Piece& piece : pieces_) {
      const layout::Interval held = HeldOf(pool, piece);
      if (held.size() > 0) views.push_back(View(piece, pool, held));
    }
  }
  return views;
}

}  // namespace trireme::engine
