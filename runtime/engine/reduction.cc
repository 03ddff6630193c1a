// The end of a step: gradients over the axes where they are Partial, the norm that all ranks agree
// on, the update.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/mutation.h"

namespace trireme::engine {

namespace {

// What NORM's one reduction carries.
enum NormField : size_t {
  kSumOfSquares,
  kLossSum,
  kCounted,
  kNotFinite,
  kStopVotes,
  kSumsMeasured,
  kSumsLarge,
  kMessagesMeasured,
  kMessagesLarge,
  kSharedTime,
  kLearningRate,
  kReplicas,  // ReplicaCheck::Sums
  kNormFields = kReplicas + ReplicaCheck::kSums
};

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
  context_ = {.seed = job.seed(), .step = step, .training = true, .first_sample = mine.begin};
  const int64_t base = static_cast<int64_t>(step) * global;
  RETURN_IF_ERROR(
      Run(stage().step(),
          {.split = data::Split::kTrain, .first = base + mine.begin, .end = base + mine.end}));
  RETURN_IF_ERROR(coding_->Agree(groups_, *stream_, ProgramEnd(SinceAllMet())));
  report_.duration_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options_.recorder != nullptr) {
    const TraceSums sums = trace_.Sums();
    options_.recorder->NoteTiming(
        {step_ + 1, report_.duration_s * 1e3, sums.compute_ms, sums.wait_ms});
  }
  return report_;
}

// Bounds for the sums of this step. Under ZeRO each replica has the moments of its share alone.
absl::Status Engine::Impl::BeginCoding() {
  const std::span<double> moments = coding_->BeginStep(step_);
  const bool sharded = plan_.job().parallelism().zero_stage() > 0;
  if (!moments.empty() && sharded) {
    RETURN_IF_ERROR(RunTraced(GroupName::kData, v1::LOAD, [&](auto& group, const auto& options) {
      return group.AllReduce(moments.data(), std::ssize(moments), tensor::DType::kF64,
                             comm::ReduceOp::kSum, options);
    }));
  }
  coding_->SetBounds(static_cast<int64_t>(step_) - state_->skipped_steps());
  return absl::OkStatus();
}

Traced Engine::Impl::ReduceOverData(const v1::Instruction& instruction) {
  const uint32_t index = instruction.bucket();
  const v1::Bucket& bucket = state_->buckets()[index];
  if (groups_.data == nullptr) return {};
  std::byte* data = state_->Flat(v1::GRADIENT, static_cast<int64_t>(bucket.offset()));
  const bool whole = plan_.job().parallelism().zero_stage() == 0;
  const CommunicationSpan span = SpanOf(instruction, GroupName::kData);
  const comm::OperationOptions coded(*stream_, coding_->Of(instruction));
  return trace_.Issue(span, *groups_.data, coded, [&](const auto& options) {
    return whole ? groups_.data->AllReduce(data, static_cast<int64_t>(bucket.count()),
                                           state_->dtype(), comm::ReduceOp::kSum, options)
                 : groups_.data->ReduceScatter({data, share_offsets_[index], state_->dtype()},
                                               options);
  });
}

// After the sum over the replicas: the tensor axis, and the other copy of a tied parameter. Under
// ZeRO only the own share is valid and summed on.
absl::Status Engine::Impl::FinishReduce(uint32_t index) {
  const v1::Bucket& bucket = state_->buckets()[index];
  layout::Interval part{0, static_cast<int64_t>(bucket.count())};
  if (plan_.job().parallelism().zero_stage() > 0) {
    part = {share_offsets_[index][groups_.at.data], share_offsets_[index][groups_.at.data + 1]};
  }
  std::byte* data = state_->Flat(v1::GRADIENT, static_cast<int64_t>(bucket.offset()) + part.begin);
  const auto sum = [&](GroupName name) {
    if (groups_.named(name) == nullptr) return absl::OkStatus();
    return RunTraced(name, v1::REDUCE, [&](auto& group, const auto& options) {
      return group.AllReduce(data, part.size(), state_->dtype(), comm::ReduceOp::kSum, options);
    });
  };
  if (bucket.reduce_tensor() && !Mutated(Mutation::kMissingSequenceParallelReduce)) {
    RETURN_IF_ERROR(sum(GroupName::kTensor));
  }
  if (bucket.reduce_tied() && !Mutated(Mutation::kTiedNotSummed)) {
    RETURN_IF_ERROR(sum(GroupName::kTied));
    if (Mutated(Mutation::kTiedCountedTwice)) RETURN_IF_ERROR(sum(GroupName::kTied));
  }
  if (Mutated(Mutation::kDataMeanTwice)) {
    stream_->Synchronize();
    for (int64_t i = 0; i < part.size(); ++i) {
      if (state_->dtype() == tensor::DType::kF64) {
        reinterpret_cast<double*>(data)[i] /= plan_.mesh().data();
      } else {
        reinterpret_cast<float*>(data)[i] /= static_cast<float>(plan_.mesh().data());
      }
    }
  }
  return absl::OkStatus();
}

// One reduction over all ranks: squares, loss, votes. The only place where a step waits for every
// peer.
absl::Status Engine::Impl::Norm() {
  stream_->Synchronize();
  double* fields = scalars() + 8;
  std::fill(fields, fields + kNormFields, 0.0);
  const int64_t start_ns = NowNs();
  fields[kSumOfSquares] = state_->OwnedSumOfSquares(options_.threads);
  if (replicas_->Due(step_)) {
    const ReplicaCheck::Sums terms = replicas_->Terms();
    std::copy(terms.begin(), terms.end(), fields + kReplicas);
  }
  trace_.Add(ComputeSpan{start_ns, NowNs()});
  if (holds_last_stage() && groups_.at.tensor == 0) {
    fields[kLossSum] = scalars()[0];
    // Every replica holds the global count by now; one of them brings it.
    fields[kCounted] = groups_.at.data == 0 ? scalars()[1] : 0;
  }
  // Asked as late as may be: a request that comes during the step still ends with this one.
  if (stop_poll_ && stop_poll_()) request_stop_ = true;
  fields[kStopVotes] = request_stop_ ? 1 : 0;
  coding_->EndStep();
  fields[kSumsMeasured] = static_cast<double>(coding_->data_errors().measured);
  fields[kSumsLarge] = static_cast<double>(coding_->data_errors().large);
  fields[kMessagesMeasured] = static_cast<double>(coding_->pipeline_errors().measured);
  fields[kMessagesLarge] = static_cast<double>(coding_->pipeline_errors().large);
  if (groups_.world->rank() == 0) {
    fields[kSharedTime] = static_cast<double>(NowNs()) * 1e-9;
    // For all: the last bit of a cosine is not the same on all processors, weights must be.
    fields[kLearningRate] = report_.learning_rate;
  }
  const double own_squares = fields[kSumOfSquares];
  if (!std::isfinite(fields[kSumOfSquares]) || !std::isfinite(fields[kLossSum])) {
    fields[kNotFinite] = 1;
  }
  RETURN_IF_ERROR(RunTraced(GroupName::kWorld, v1::NORM, [&](auto& world, const auto& options) {
    return world.AllReduce(fields, kNormFields, tensor::DType::kF64, comm::ReduceOp::kSum, options);
  }));
  met_ns_ = NowNs();
  ReplicaCheck::Sums replicas;
  std::copy_n(fields + kReplicas, replicas.size(), replicas.begin());
  if (!ReplicaCheck::Agree(replicas)) {
    return NameDifferingReplicas(absl::StrCat("at step ", step_ + 1));
  }
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
  update_ = true;
  const double limit = plan_.job().optimizer().gradient_clip_norm();
  double norm = report_.gradient_norm;
  if (Mutated(Mutation::kClipByShardNorm)) norm = std::sqrt(own_squares);
  // torch.nn.utils.clip_grad_norm_: scale = limit / (norm + 1e-6), at most 1.
  clip_scale_ = limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0;
  if (fields[kNotFinite] != 0 || !std::isfinite(report_.gradient_norm)) return JudgeNonFinite();
  SetUpdate();
  return absl::OkStatus();
}

// After the forward part that adds to the loss: once the sum is not finite, the rows of this
// micro-batch say which sample began it. They are looked at then only.
void Engine::Impl::LookForBadLoss(const v1::Instruction& forward, int64_t first_sample) {
  const bool has_loss = holds_last_stage() && forward.virtual_stage() + 1 == stages_.size();
  if (!has_loss || row_losses_ == graph::kNone) return;
  stream_->Issue(tensor::Task([this, at = &forward, first_sample] {
    if (bad_loss_.first >= 0 || std::isfinite(scalars()[0])) return;
    const int64_t samples = plan_.job().training().micro_batch_size();
    const int64_t length = plan_.job().data().sequence_length();
    const std::byte* rows = stages_.back()->BufferAddress(row_losses_, *at);
    const auto* targets = reinterpret_cast<const int32_t*>(
        arena_.Slot(v1::TOKENS, 0, at->micro_batch()) + arena_.SlotBytes(v1::TOKENS, 0) / 2);
    bad_loss_ = {first_sample + at->micro_batch() * samples, samples};
    for (int64_t row = 0; row < samples * length; ++row) {
      const double value = state_->dtype() == tensor::DType::kF64
                               ? reinterpret_cast<const double*>(rows)[row]
                               : reinterpret_cast<const float*>(rows)[row];
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
  update_ = false;
  report_.skipped = true;
  const std::string name = state_->FirstNonFinite();
  const int world = groups_.world->size();
  // Both as largest of: ranks from the end; first samples below zero, a single one before several.
  constexpr double kNowhere = -0x1p52;
  const bool alone = bad_loss_.samples == 1;
  double keys[2] = {
      name.empty() ? 0 : static_cast<double>(world - groups_.world->rank()),
      bad_loss_.first < 0 ? kNowhere : -static_cast<double>(2 * bad_loss_.first + (alone ? 0 : 1))};
  RETURN_IF_ERROR(RunTraced(GroupName::kWorld, v1::NORM, [&](auto& group, const auto& options) {
    return group.AllReduce(keys, 2, tensor::DType::kF64, comm::ReduceOp::kMax, options);
  }));
  std::array<char, 256> text{};
  const int owner = keys[0] == 0 ? 0 : world - static_cast<int>(keys[0]);
  name.copy(text.data(), text.size() - 1);
  RETURN_IF_ERROR(RunTraced(GroupName::kWorld, v1::NORM, [&](auto& group, const auto& options) {
    return group.Broadcast(std::as_writable_bytes(std::span(text)), owner, options);
  }));
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

void Engine::Impl::SetUpdate() {
  const v1::OptimizerSpec& spec = plan_.job().optimizer();
  update_options_ = {.learning_rate = report_.learning_rate,
                     .beta1 = spec.beta1(),
                     .beta2 = spec.beta2(),
                     .epsilon = spec.epsilon(),
                     .weight_decay = spec.weight_decay(),
                     .step = static_cast<int64_t>(step_) + 1 - state_->skipped_steps(),
                     .gradient_scale = clip_scale_,
                     .threads = options_.threads};
}

// The GATHERs of the buckets before this one are under way; nobody else moves them while it runs.
void Engine::Impl::Update(uint32_t bucket) {
  if (!update_) return;
  stream_->Issue(tensor::Task([this, bucket] {
    const int64_t start_ns = NowNs();
    state_->Update(bucket, update_options_, [this] { groups_.Progress(); });
    trace_.Add(ComputeSpan{start_ns, NowNs()});
  }));
}

Traced Engine::Impl::Gather(const v1::Instruction& instruction) {
  if (groups_.data == nullptr || !update_ || Mutated(Mutation::kStaleGather)) return {};
  const uint32_t index = instruction.bucket();
  const v1::Bucket& bucket = state_->buckets()[index];
  std::byte* data = state_->Flat(v1::PARAMETER, static_cast<int64_t>(bucket.offset()));
  return trace_.Issue(
      SpanOf(instruction, GroupName::kData), *groups_.data, *stream_, [&](const auto& options) {
        return groups_.data->AllGather({data, share_offsets_[index], state_->dtype()}, options);
      });
}

}  // namespace trireme::engine
