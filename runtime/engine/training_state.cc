#include "runtime/engine/training_state.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/engine/mutation.h"

namespace trireme::engine {

using tensor::DType;

namespace {

// Updated between two looks at transfers in flight: 28 bytes each, so a millisecond at 7 GB/s. Cuts
// never change a bit.
constexpr int64_t kUpdateElements = int64_t{1} << 18;

}  // namespace

TrainingState::TrainingState(const v1::Plan& plan, const graph::ModelGraph& graph,
                             const plan::Coordinates& at, plan::StateLayout layout,
                             const Arena& arena)
    : arena_(arena),
      dtype_(plan::ComputeDType(plan.job())),
      sharded_(plan.job().parallelism().zero_stage() > 0),
      tied_(plan.mesh().pipeline() > 1 ? graph.tied : graph::kNone),
      layout_(std::move(layout)) {
  const int64_t data_size = plan.mesh().data();
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
    piece.owned = replicated || place.tied_copy ? layout::Interval{0, 0} : share;
    piece.moment_offset = place.offset + piece.updated.begin;
    if (sharded_) {
      const int64_t count = static_cast<int64_t>(bucket.count()) / data_size;
      const int64_t begin = static_cast<int64_t>(bucket.offset());
      piece.moment_offset += begin / data_size - (begin + count * at.data);
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
  const int64_t updated = layout_.elements / (sharded_ ? int64_t{plan.mesh().data()} : 1);
  for (const auto& [pool, elements] :
       {std::pair(v1::PARAMETER, layout_.elements), std::pair(v1::GRADIENT, layout_.elements),
        std::pair(v1::MOMENT1, updated), std::pair(v1::MOMENT2, updated)}) {
    if (arena_.SlotBytes(pool, 0) < static_cast<size_t>(elements) * tensor::SizeOf(dtype_)) {
      return differ(absl::StrCat("the bytes of the pool ", v1::PoolKind_Name(pool)));
    }
  }
  return absl::OkStatus();
}

void TrainingState::AddMoment2(size_t gradient, std::span<double> rows,
                               std::span<double> columns) const {
  TRIREME_CHECK(dtype_ == DType::kF32);
  const Piece& piece = pieces_[piece_of_gradient_[gradient]];
  const int64_t width = std::ssize(columns);
  const auto* moment = Flat(v1::MOMENT2, piece.moment_offset).as<const float>();
  for (int64_t at = piece.updated.begin; at < piece.updated.end;) {
    const int64_t row = at / width, column = at % width;
    const int64_t count = std::min(width - column, piece.updated.end - at);
    const std::span<const float> values(moment + (at - piece.updated.begin),
                                        static_cast<size_t>(count));
    rows[static_cast<size_t>(row)] += optim::AddRow(
        values, columns.subspan(static_cast<size_t>(column), static_cast<size_t>(count)));
    at += count;
  }
}

tensor::DevicePointer TrainingState::Flat(v1::PoolKind pool, int64_t offset) const {
  return arena_.Slot(pool, 0, 0) + static_cast<size_t>(offset) * tensor::SizeOf(dtype_);
}

std::vector<int64_t> TrainingState::ParameterOffsets() const {
  std::vector<int64_t> offsets;
  for (const Piece& piece : pieces_) {
    const size_t id = static_cast<size_t>(piece.place.parameter);
    if (offsets.size() <= id) offsets.resize(id + 1, -1);
    offsets[id] = piece.place.offset;
  }
  return offsets;
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
  const tensor::DevicePointer data = Flat(v1::PARAMETER, piece.place.offset);
  ForEachRun(piece.box, parameter.shape, [&](int64_t local, int64_t global, int64_t length) {
    for (int64_t index = 0; index < length; ++index) {
      double value = parameter.initial == graph::Initial::kOnes ? 1.0 : 0.0;
      if (parameter.initial == graph::Initial::kNormal) {
        value = parameter.standard_deviation * site.Normal(static_cast<uint64_t>(global + index));
      }
      if (dtype_ == DType::kF64) {
        data.as<double>()[local + index] = value;
      } else {
        data.as<float>()[local + index] = static_cast<float>(value);
      }
    }
  });
}

void TrainingState::Initialize(uint64_t seed, int threads) const {
  for (v1::PoolKind pool : {v1::PARAMETER, v1::GRADIENT, v1::MOMENT1, v1::MOMENT2}) {
    if (arena_.SlotBytes(pool, 0) > 0)
      std::memset(arena_.Slot(pool, 0, 0).get(), 0, arena_.SlotBytes(pool, 0));
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
    const tensor::DevicePointer data = Flat(v1::GRADIENT, piece.place.offset + piece.owned.begin);
    const size_t count = static_cast<size_t>(piece.owned.size());
    if (dtype_ == DType::kF64) {
      sum += optim::SumOfSquares<double>({data.as<const double>(), count}, threads);
    } else {
      sum += optim::SumOfSquares<float>({data.as<const float>(), count}, threads);
    }
  }
  return sum;
}

template <typename T>
void TrainingState::UpdatePiece(const Piece& piece, const optim::AdamWOptions& options,
                                const std::function<void()>& between) const {
  optim::AdamWOptions own = options;
  if (!piece.parameter->decay && !Mutated(Mutation::kDecayEverything)) own.weight_decay = 0;
  for (int64_t begin = 0; begin < piece.updated.size(); begin += kUpdateElements) {
    const auto count = static_cast<size_t>(std::min(kUpdateElements, piece.updated.size() - begin));
    const int64_t flat = piece.place.offset + piece.updated.begin + begin;
    const auto span = [&](v1::PoolKind pool, int64_t offset) {
      return std::span<T>(Flat(pool, offset).as<T>(), count);
    };
    const std::span<T> gradient = span(v1::GRADIENT, flat);
    const int64_t moment = piece.moment_offset + begin;
    optim::AdamW<T>(span(v1::PARAMETER, flat), gradient, span(v1::MOMENT1, moment),
                    span(v1::MOMENT2, moment), own);
    between();
  }
}

void TrainingState::Update(uint32_t bucket, const optim::AdamWOptions& options,
                           const std::function<void()>& between) const {
  for (const Piece& piece : pieces_) {
    if (piece.place.bucket != bucket || piece.updated.size() == 0) continue;
    if (dtype_ == DType::kF64) {
      UpdatePiece<double>(piece, options, between);
    } else {
      UpdatePiece<float>(piece, options, between);
    }
  }
}

std::string TrainingState::FirstNonFinite() const {
  for (const Piece& piece : pieces_) {
    const tensor::DevicePointer data = Flat(v1::GRADIENT, piece.place.offset);
    for (int64_t index = piece.owned.begin; index < piece.owned.end; ++index) {
      const double value =
          dtype_ == DType::kF64 ? data.as<const double>()[index] : data.as<const float>()[index];
      if (!std::isfinite(value)) return piece.parameter->name;
    }
  }
  return {};
}

TrainingState::HeldParameter TrainingState::held_parameter(size_t index) const {
  const Piece& piece = pieces_[index];
  const auto bytes = static_cast<size_t>(piece.length) * tensor::SizeOf(dtype_);
  return {.id = piece.place.parameter,
          .whole = piece.parameter->shard_dim == graph::kNone,
          .tied = piece.place.parameter == tied_,
          .bytes = {Flat(v1::PARAMETER, piece.place.offset).get(), bytes}};
}

StateView TrainingState::View(const Piece& piece, const std::string& kind,
                              const layout::Interval& interval) const {
  StateView view{.name = piece.parameter->name,
                 .kind = kind,
                 .dtype = dtype_,
                 .shape = piece.parameter->shape,
                 .shard = {.box = piece.box, .interval = interval}};
  if (kind == "parameter" || kind == "gradient") {
    view.data = Flat(kind == "parameter" ? v1::PARAMETER : v1::GRADIENT,
                     piece.place.offset + interval.begin);
  } else {
    TRIREME_CHECK(kind == "moment1" || kind == "moment2");
    view.data = Flat(kind == "moment1" ? v1::MOMENT1 : v1::MOMENT2,
                     piece.moment_offset + interval.begin - piece.updated.begin);
  }
  return view;
}

std::vector<StateView> TrainingState::Owned(const std::string& kind) const {
  std::vector<StateView> views;
  for (const Piece& piece : pieces_) {
    if (piece.owned.size() > 0) views.push_back(View(piece, kind, piece.owned));
  }
  return views;
}

std::vector<StateView> TrainingState::Held(const std::string& kind) const {
  const bool moment = kind == "moment1" || kind == "moment2";
  std::vector<StateView> views;
  for (const Piece& piece : pieces_) {
    const layout::Interval interval = moment ? piece.updated : layout::Interval{0, piece.length};
    if (interval.size() > 0) views.push_back(View(piece, kind, interval));
  }
  return views;
}

}  // namespace trireme::engine
