// The end of a step: gradients over the axes where they are Partial, the norm that all ranks agree
// on, the update.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/mutation.h"
#include "runtime/tensor/element.h"

namespace trireme::engine {

namespace {

optim::LearningRateOptions RateOptions(const v1::OptimizerSpec& spec) {
  optim::LearningRateOptions options{.peak = spec.learning_rate(),
                                     .minimum = spec.min_learning_rate(),
                                     .warmup_steps = spec.warmup_steps(),
                                     .decay_steps = spec.decay_steps()};
  options.schedule = spec.schedule() == "cosine"   ? optim::LearningRateSchedule::kCosine
                     : spec.schedule() == "linear" ? optim::LearningRateSchedule::kLinear
                                                   : optim::LearningRateSchedule::kConstant;
  return options;
}

// A planted bug.
bool IsForgotten(int axis) {
  return (axis == v1::AXIS_TENSOR && Mutated(Mutation::kMissingSequenceParallelReduce)) ||
         (axis == v1::AXIS_TIED && Mutated(Mutation::kTiedNotSummed));
}

// For a planted bug: by the default width of a gradient.
bool IsLarge(const v1::Bucket& bucket, const v1::JobSpec& job) {
  return static_cast<int64_t>(bucket.count()) * 4 >= job.parallelism().bucket_bytes();
}

// A planted bug.
void CutToBf16(std::span<float> values) {
  for (float& value : values) {
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000U);
  }
}

// For a planted bug.
bool IsLargest(const v1::Bucket& bucket, const std::vector<v1::Bucket>& buckets) {
  return std::all_of(buckets.begin(), buckets.end(),
                     [&](const v1::Bucket& other) { return other.count() <= bucket.count(); });
}

template <typename T>
void AddOrCopy(const T* from, int64_t count, bool adds, T* to) {
  if (!adds) {
    std::copy_n(from, count, to);
    return;
  }
  for (int64_t index = 0; index < count; ++index) to[index] += from[index];
}

bool IsFinite(const StepBlock& block) {
  return block.norm[kNotFinite] == 0 && std::isfinite(block.norm[kSumOfSquares]);
}

bool ReplicasAgree(const StepBlock& block) {
  ReplicaCheck::Sums sums;
  std::copy_n(block.norm + kReplicas, sums.size(), sums.begin());
  return ReplicaCheck::Agree(sums);
}

}  // namespace

absl::StatusOr<StepReport> Engine::Impl::RunStep(uint64_t step, bool request_stop) {
  const auto start = std::chrono::steady_clock::now();
  const v1::JobSpec& job = plan_.job();
  const int64_t global = job.training().global_batch_size();
  const layout::Interval mine = plan::ReplicaSamples(plan_, global, groups_.at.data);
  step_ = step;
  request_stop_ = request_stop;
  report_ = {};
  bad_loss_ = {};
  report_.learning_rate =
      optim::LearningRate(RateOptions(job.optimizer()), static_cast<int64_t>(step));
  share_begun_.assign(state_->buckets().size(), false);
  share_summed_ = share_begun_;
  context_ = {.seed = job.seed(), .step = step, .training = true, .first_sample = mine.begin};
  const int64_t base = static_cast<int64_t>(step) * global;
  if (options_.snapshots != nullptr && state_->slots().on()) {
    state_->slots().set_next(options_.snapshots->NextSlot(state_->slots().state()));
  }
  RETURN_IF_ERROR(
      Run(stage().step(),
          {.split = data::Split::kTrain, .first = base + mine.begin, .end = base + mine.end}));
  RETURN_IF_ERROR(FinishStep());
  RETURN_IF_ERROR(coding_->Agree(groups_, *host_stream_, ProgramEnd(agreement_->SinceMet())));
  report_.duration_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options_.recorder != nullptr) {
    const TraceSums sums = trace_.Sums();
    options_.recorder->NoteTiming(
        {step_ + 1, report_.duration_s * 1e3, sums.compute_ms, sums.wait_ms, sums.offload_ms});
  }
  return report_;
}

// Bounds for the sums of this step. Under ZeRO each replica has the moments of its share alone.
void Engine::Impl::BeginCoding() {
  coding_->BeginStep(step_, static_cast<int64_t>(step_) - state_->skipped_steps());
  const std::span<double> moments = coding_->moments();
  if (!moments.empty()) {
    stream_->Issue(tensor::Task([this] { coding_->SumMoments(); }));
    if (plan::ZeroStage(plan_) > 0) {
      RunTraced(GroupName::kData, v1::LOAD, [&](auto& group, const auto& options) {
        return group.AllReduce(moments.data(), std::ssize(moments), tensor::DType::kF64,
                               comm::ReduceOp::kSum, options);
      });
    }
  }
  stream_->Issue(tensor::Task([this] { coding_->SetBounds(); }));
}

Traced Engine::Impl::ReduceOverData(const v1::Instruction& instruction) {
  const uint32_t index = instruction.bucket();
  const v1::Bucket& bucket = state_->buckets()[index];
  if (groups_.data == nullptr || !plan::IsPartialOver(bucket, v1::AXIS_DATA)) return {};
  if (Mutated(Mutation::kLargeBucketForgotten) && IsLarge(bucket, plan_.job())) return {};
  const int zero = plan::ZeroStage(plan_);
  const v1::PoolKind pool = zero >= 2 ? v1::PARTIAL : v1::GRADIENT;
  std::byte* data = state_->Flat(pool, WorkingBegin(pool, bucket)).get();
  const bool whole = zero == 0;
  if (pool == v1::PARTIAL) {
    stream_->Issue(tensor::Task([this, index] { state_->ClearGaps(index); }));
  }
  if (instruction.coded() && Mutated(Mutation::kGradientsCut, index)) {
    stream_->Issue(tensor::Task([data, count = bucket.count()] {
      CutToBf16({reinterpret_cast<float*>(data), count});
    }));
  }
  comm::Sharded sharded{data, share_offsets_[index], state_->dtype(v1::GRADIENT)};
  // What other micro-batches add to begins as the sum of the first, and so that goes there at once.
  const bool shifted = Mutated(Mutation::kShareOfAnother, index);
  if (pool == v1::PARTIAL && !share_begun_[index] && !shifted) {
    share_begun_[index] = share_summed_[index] = true;
    sharded.share = ShareOf(bucket).get();
  }
  const CommunicationSpan span = SpanOf(instruction, GroupName::kData);
  const comm::OperationOptions coded(*stream_, coding_->Of(instruction));
  const auto sum = [&](const auto& options) {
    return whole ? groups_.data->AllReduce(data, static_cast<int64_t>(bucket.count()),
                                           sharded.dtype, comm::ReduceOp::kSum, options)
                 : groups_.data->ReduceScatter(sharded, options);
  };
  if (groups_.data->SumsInWindow() && IsLargest(bucket, state_->buckets())) {
    if (Mutated(Mutation::kReplicaLeftOut) && groups_.at.data == 1) {
      const size_t bytes = bucket.count() * tensor::SizeOf(state_->dtype(v1::GRADIENT));
      stream_->Issue(tensor::Task([data, bytes] { std::memset(data, 0, bytes); }));
    }
    if (Mutated(Mutation::kReplicasSummedTwice)) {
      RunTraced(GroupName::kData, v1::REDUCE,
                [&](comm::Communicator&, const auto& options) { return sum(options); });
    }
  }
  return trace_.Issue(span, *groups_.data, coded, sum);
}

// Of a bucket's gradients over all micro-batches, under ZeRO-2 and ZeRO-3.
tensor::DevicePointer Engine::Impl::ShareOf(const v1::Bucket& bucket) const {
  return state_->Flat(v1::GRADIENT, static_cast<int64_t>(bucket.offset()) / plan_.mesh().data());
}

// The share of the sum over the replicas that this rank owns, to those of earlier micro-batches.
void Engine::Impl::AddToShare(uint32_t index) {
  if (share_summed_[index]) {
    share_summed_[index] = false;
    return;
  }
  const v1::Bucket& bucket = state_->buckets()[index];
  const int64_t size = share_offsets_[index][1];
  const uint32_t replica =
      (groups_.at.data + (Mutated(Mutation::kShareOfAnother, index) ? 1 : 0)) % plan_.mesh().data();
  const int64_t own = share_offsets_[index][replica];
  const tensor::DevicePointer from =
      state_->Flat(v1::PARTIAL, WorkingBegin(v1::PARTIAL, bucket) + own);
  const tensor::DevicePointer to = ShareOf(bucket);
  const bool adds = share_begun_[index] && !Mutated(Mutation::kLastMicroBatchOnly, index);
  share_begun_[index] = true;
  stream_->Issue(tensor::Task([this, from, to, size, adds] {
    const int64_t start_ns = NowNs();
    if (state_->dtype(v1::GRADIENT) == tensor::DType::kF64) {
      AddOrCopy(from.as<const double>(), size, adds, to.as<double>());
    } else {
      AddOrCopy(from.as<const float>(), size, adds, to.as<float>());
    }
    trace_.Add(ComputeSpan{start_ns, NowNs()});
  }));
}

// After the sum over the replicas: the other axes. Under ZeRO only the own share is valid and
// summed on.
void Engine::Impl::SumOtherAxes(uint32_t index) {
  const v1::Bucket& bucket = state_->buckets()[index];
  const int zero = plan::ZeroStage(plan_);
  layout::Interval part{0, static_cast<int64_t>(bucket.count())};
  if (zero > 0) {
    part = {share_offsets_[index][groups_.at.data], share_offsets_[index][groups_.at.data + 1]};
  }
  const auto begin = static_cast<int64_t>(bucket.offset());
  const tensor::DevicePointer data =
      state_->Flat(v1::GRADIENT, zero >= 2 ? begin / plan_.mesh().data() : begin + part.begin);
  const auto sum = [&](GroupName name) {
    if (groups_.named(name) == nullptr) return;
    RunTraced(name, v1::REDUCE, [&](auto& group, const auto& options) {
      return group.AllReduce(data.get(), part.size(), state_->dtype(v1::GRADIENT),
                             comm::ReduceOp::kSum, options);
    });
  };
  for (const int axis : bucket.axes()) {
    if (axis == v1::AXIS_DATA || IsForgotten(axis)) continue;
    sum(axis == v1::AXIS_TENSOR ? GroupName::kTensor : GroupName::kTied);
    if (axis == v1::AXIS_TIED && Mutated(Mutation::kTiedCountedTwice)) sum(GroupName::kTied);
  }
  if (!Mutated(Mutation::kDataMeanTwice)) return;
  stream_->Issue(tensor::Task([this, data, size = part.size()] {
    for (int64_t i = 0; i < size; ++i) {
      const tensor::DType dtype = state_->dtype(v1::GRADIENT);
      tensor::SetElement(dtype, data.get(), i,
                         tensor::ElementAt(dtype, data.get(), i) / plan_.mesh().data());
    }
  }));
}

// One reduction over all ranks: squares, loss, votes. The only place where a step waits for every
// peer.
void Engine::Impl::Norm() {
  PollStop();
  stream_->Issue(tensor::Task([this] { FillNorm(); }));
  RunTraced(GroupName::kWorld, v1::NORM, [&](auto& world, const auto& options) {
    return world.AllReduce(block()->norm, kNormFields, tensor::DType::kF64, comm::ReduceOp::kSum,
                           options);
  });
  stream_->Issue(tensor::Task([this] { JudgeNorm(); }));
}

// Asked until NORM's task runs, as late as may be: a request that comes during the step still ends
// with this one.
void Engine::Impl::PollStop() {
  if (stop_poll_ && context_.training && !request_stop_ && stop_poll_()) request_stop_ = true;
}

void Engine::Impl::FillNorm() {
  StepBlock& block = *this->block();
  const int64_t start_ns = NowNs();
  block.own_squares = state_->OwnedSumOfSquares(options_.threads);
  block.norm[kSumOfSquares] = block.own_squares;
  if (replicas_->Due(step_)) {
    const ReplicaCheck::Sums terms = replicas_->Terms();
    std::copy(terms.begin(), terms.end(), block.norm + kReplicas);
  }
  trace_.Add(ComputeSpan{start_ns, NowNs()});
  if (holds_last_stage() && groups_.at.tensor == 0) {
    block.norm[kLossSum] = block.loss_sum;
    // Every replica holds the global count by now; one of them brings it.
    block.norm[kCounted] = groups_.at.data == 0 ? block.counted : 0;
  }
  block.norm[kStopVotes] = request_stop_ ? 1 : 0;
  coding_->EndStep();
  block.norm[kSumsMeasured] = static_cast<double>(coding_->data_errors().measured);
  block.norm[kSumsLarge] = static_cast<double>(coding_->data_errors().large);
  block.norm[kMessagesMeasured] = static_cast<double>(coding_->pipeline_errors().measured);
  block.norm[kMessagesLarge] = static_cast<double>(coding_->pipeline_errors().large);
  if (groups_.world->rank() == 0) {
    block.norm[kSharedTime] = static_cast<double>(NowNs()) * 1e-9;
    // For all: the last bit of a cosine is not the same on all processors, weights must be.
    block.norm[kLearningRate] = report_.learning_rate;
  }
  if (!std::isfinite(block.own_squares) || !std::isfinite(block.norm[kLossSum])) {
    block.norm[kNotFinite] = 1;
  }
}

// Whether the step's STEPs update, and how. Where they do not, FinishStep says why.
void Engine::Impl::JudgeNorm() {
  agreement_->Met();
  StepBlock& block = *this->block();
  const v1::OptimizerSpec& spec = plan_.job().optimizer();
  const double squares =
      Mutated(Mutation::kClipByShardNorm) ? block.own_squares : block.norm[kSumOfSquares];
  // torch.nn.utils.clip_grad_norm_: scale = limit / (norm + 1e-6), at most 1.
  const double limit = spec.gradient_clip_norm();
  block.clip_scale = limit > 0 ? std::min(1.0, limit / (std::sqrt(squares) + 1e-6)) : 1.0;
  const bool alike = ReplicasAgree(block);
  // Before a GATHER mends what an owner's copy can mend.
  if (!alike) held_parts_ = replicas_->Parts();
  block.updates = alike && IsFinite(block) && groups_.status().ok() ? 1 : 0;
  if (block.updates != 0) BeginSnapshot();
  update_options_ = {.learning_rate = block.norm[kLearningRate],
                     .beta1 = spec.beta1(),
                     .beta2 = spec.beta2(),
                     .epsilon = spec.epsilon(),
                     .weight_decay = spec.weight_decay(),
                     .step = static_cast<int64_t>(step_) + 1 - state_->skipped_steps(),
                     .gradient_scale = block.clip_scale,
                     .threads = options_.threads};
}

// What the step's one reduction says, once the host has it.
absl::Status Engine::Impl::FinishStep() {
  // Behind all STEPs.
  if (block_.updates != 0) {
    state_->slots().Commit();
    RETURN_IF_ERROR(staged_);
  }
  if (!ReplicasAgree(block_)) return NameDifferingReplicas(absl::StrCat("at step ", step_ + 1));
  const double* fields = block_.norm;
  report_.tokens = static_cast<int64_t>(fields[kCounted]);
  report_.loss = fields[kLossSum] / std::max(1.0, fields[kCounted]);
  report_.gradient_norm = std::sqrt(fields[kSumOfSquares]);
  report_.stop_requested = fields[kStopVotes] > 0;
  report_.shared_time_s = fields[kSharedTime];
  report_.learning_rate = fields[kLearningRate];
  report_.gradient_sums = {static_cast<int64_t>(fields[kSumsMeasured]),
                           static_cast<int64_t>(fields[kSumsLarge])};
  report_.messages = {static_cast<int64_t>(fields[kMessagesMeasured]),
                      static_cast<int64_t>(fields[kMessagesLarge])};
  return IsFinite(block_) ? absl::OkStatus() : JudgeNonFinite();
}

// After the part of backward that adds to the loss, the first: once the sum is not finite, the rows
// of this micro-batch say which sample began it. They are looked at then only.
void Engine::Impl::LookForBadLoss(const v1::Instruction& head, int64_t first_sample) {
  const bool has_loss = holds_last_stage() && head.virtual_stage() + 1 == stages_.size();
  if (!has_loss || head.op_begin() > 0) return;
  stream_->Issue(tensor::Task([this, at = &head, first_sample] {
    if (bad_loss_.first >= 0 || std::isfinite(block()->loss_sum)) return;
    const int64_t samples = plan_.job().training().micro_batch_size();
    const int64_t length = plan_.job().data().sequence_length();
    const StageExecutor& stage = *stages_.back();
    const tensor::DevicePointer rows = stage.BufferAddress(stage.ops().row_losses_buffer, *at);
    const auto* targets =
        (arena_.Slot(v1::TOKENS, 0, at->micro_batch()) + arena_.SlotBytes(v1::TOKENS, 0) / 2)
            .as<const int32_t>();
    bad_loss_ = {first_sample + at->micro_batch() * samples, samples};
    for (int64_t row = 0; row < samples * length; ++row) {
      const double value = tensor::ElementAt(state_->dtype(v1::GRADIENT), rows.get(), row);
      if (targets[row] < 0 || std::isfinite(value)) continue;
      bad_loss_ = {bad_loss_.first + row / length, 1};
      return;
    }
  }));
}

// All ranks come here together, since all saw the same sums. The lowest rank that holds a bad
// gradient names it, the last stages name the first sample whose loss is bad.
absl::Status Engine::Impl::JudgeNonFinite() {
  const v1::TrainingSpec& training = plan_.job().training();
  report_.skipped = true;
  std::string name;
  OnDevice([&] { name = state_->FirstNonFinite(); });
  const int world = agreement_->size();
  // Both as largest of: ranks from the end; first samples below zero, a single one before several.
  constexpr double kNowhere = -0x1p52;
  const bool alone = bad_loss_.samples == 1;
  double keys[2] = {
      name.empty() ? 0 : static_cast<double>(world - groups_.world->rank()),
      bad_loss_.first < 0 ? kNowhere : -static_cast<double>(2 * bad_loss_.first + (alone ? 0 : 1))};
  RETURN_IF_ERROR(agreement_->Reduce(keys, comm::ReduceOp::kMax));
  std::array<char, 256> text{};
  const int owner = keys[0] == 0 ? 0 : world - static_cast<int>(keys[0]);
  name.copy(text.data(), text.size() - 1);
  RETURN_IF_ERROR(agreement_->Broadcast(std::as_writable_bytes(std::span(text)), owner));
  const std::string where = keys[0] == 0
                                ? std::string("the loss (no gradient is affected)")
                                : absl::StrCat("the gradient of ", text.data(), " on rank ", owner);
  const int64_t first = static_cast<int64_t>(step_) * training.global_batch_size();
  const std::string batch =
      absl::StrCat("samples ", first, " to ", first + training.global_batch_size() - 1);
  std::string samples = absl::StrCat(batch, " (the loss is finite: which of them is not known)");
  if (keys[1] != kNowhere) {
    const int64_t key = static_cast<int64_t>(-keys[1]), bad = key / 2;
    samples = absl::StrCat("sample ", bad);
    if (key % 2 != 0) {
      samples = absl::StrCat("samples ", bad, " to ", bad + training.micro_batch_size() - 1);
    }
    absl::StrAppend(&samples, ", the first with a bad loss of ", batch);
  }
  report_.nonfinite = absl::StrCat("NaN or Inf in ", where, " at step ", step_ + 1, ", ", samples);
  if (training.nonfinite_policy() == "skip") {
    state_->set_skipped_steps(state_->skipped_steps() + 1);
    return absl::OkStatus();
  }
  return absl::AbortedError(absl::StrCat(
      report_.nonfinite,
      "; nothing was updated. Lower optimizer.learning_rate, look at these samples, or set "
      "training.nonfinite_policy: skip to leave such steps out"));
}

// The GATHERs of the buckets before this one are under way; nobody else moves them while it runs.
void Engine::Impl::Update(const v1::Instruction& step) {
  stream_->Issue(tensor::Task([this, room = state_->RoomOf(step)] {
    if (block()->updates == 0 || (swapping_ != nullptr && swapping_->failed())) return;
    const int64_t start_ns = NowNs();
    state_->Update(room, update_options_, [this] { groups_.Progress(); });
    trace_.Add(ComputeSpan{start_ns, NowNs()});
  }));
}

Traced Engine::Impl::Gather(const v1::Instruction& instruction) {
  if (groups_.data == nullptr || Mutated(Mutation::kStaleGather)) return {};
  const uint32_t index = instruction.bucket();
  const v1::Bucket& bucket = state_->buckets()[index];
  const bool at_hand = plan::ZeroStage(plan_) >= 3;
  const v1::PoolKind pool = at_hand ? v1::GATHERED : v1::PARAMETER;
  const bool misplaced = at_hand && Mutated(Mutation::kWrongGatheredPlace);
  const v1::Bucket& place = misplaced ? state_->buckets()[0] : bucket;
  comm::Sharded sharded{state_->Flat(pool, WorkingBegin(pool, place)).get(), share_offsets_[index],
                        state_->dtype(pool)};
  if (at_hand) {
    const int64_t share = static_cast<int64_t>(bucket.offset()) / plan_.mesh().data();
    sharded.share = state_->Flat(v1::PARAMETER, share).get();
  }
  return trace_.Issue(
      SpanOf(instruction, GroupName::kData), *groups_.data, *stream_,
      [&](const auto& options) { return groups_.data->AllGather(sharded, options); });
}

}  // namespace trireme::engine
