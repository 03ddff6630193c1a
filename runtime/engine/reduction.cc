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
enum NormField : size_t { kSumOfSquares, kLossSum, kCounted, kNotFinite, kStopVotes, kNormFields };

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
  exposed_ns_ = 0;
  report_ = {};
  report_.learning_rate =
      optim::LearningRate(RateOptions(job.optimizer()), static_cast<int64_t>(step));
  context_ = {.seed = job.seed(), .step = step, .training = true, .first_sample = mine.begin};
  const int64_t base = static_cast<int64_t>(step) * global;
  RETURN_IF_ERROR(
      Run(stage().step(),
          {.split = data::Split::kTrain, .first = base + mine.begin, .end = base + mine.end}));
  report_.exposed_communication_s = static_cast<double>(exposed_ns_) * 1e-9;
  report_.duration_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report_;
}

comm::Ticket Engine::Impl::ReduceOverData(uint32_t index) {
  const v1::Bucket& bucket = state_->buckets()[index];
  if (groups_.data == nullptr) return {};
  std::byte* data = state_->Flat(v1::GRADIENT, static_cast<int64_t>(bucket.offset()));
  if (plan_.job().parallelism().zero_stage() == 0) {
    return groups_.data->AllReduce(data, static_cast<int64_t>(bucket.count()), state_->dtype(),
                                   comm::ReduceOp::kSum, *stream_);
  }
  return groups_.data->ReduceScatter({data, share_offsets_[index], state_->dtype()}, *stream_);
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
  const auto sum = [&](comm::Communicator* group) {
    if (group == nullptr) return absl::OkStatus();
    return WaitCounted(*group, group->AllReduce(data, part.size(), state_->dtype(),
                                                comm::ReduceOp::kSum, *stream_));
  };
  if (bucket.reduce_tensor() && !Mutated(Mutation::kMissingSequenceParallelReduce)) {
    RETURN_IF_ERROR(sum(groups_.tensor.get()));
  }
  if (bucket.reduce_tied() && !Mutated(Mutation::kTiedNotSummed)) {
    RETURN_IF_ERROR(sum(groups_.tied.get()));
    if (Mutated(Mutation::kTiedCountedTwice)) RETURN_IF_ERROR(sum(groups_.tied.get()));
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
  fields[kSumOfSquares] = state_->OwnedSumOfSquares(options_.threads);
  if (holds_last_stage() && groups_.at.tensor == 0) {
    fields[kLossSum] = scalars()[0];
    // Every replica holds the global count by now; one of them brings it.
    fields[kCounted] = groups_.at.data == 0 ? scalars()[1] : 0;
  }
  fields[kStopVotes] = request_stop_ ? 1 : 0;
  const double own_squares = fields[kSumOfSquares];
  if (!std::isfinite(fields[kSumOfSquares]) || !std::isfinite(fields[kLossSum])) {
    fields[kNotFinite] = 1;
  }
  RETURN_IF_ERROR(
      WaitCounted(*groups_.world, groups_.world->AllReduce(fields, kNormFields, tensor::DType::kF64,
                                                           comm::ReduceOp::kSum, *stream_)));
  report_.tokens = static_cast<int64_t>(fields[kCounted]);
  report_.loss = fields[kLossSum] / std::max(1.0, fields[kCounted]);
  report_.gradient_norm = std::sqrt(fields[kSumOfSquares]);
  report_.stop_requested = fields[kStopVotes] > 0;
  update_ = true;
  const double limit = plan_.job().optimizer().gradient_clip_norm();
  double norm = report_.gradient_norm;
  if (Mutated(Mutation::kClipByShardNorm)) norm = std::sqrt(own_squares);
  // torch.nn.utils.clip_grad_norm_: scale = limit / (norm + 1e-6), at most 1.
  clip_scale_ = limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0;
  if (fields[kNotFinite] == 0 && std::isfinite(report_.gradient_norm)) return absl::OkStatus();
  return JudgeNonFinite();
}

// All ranks come here together, since all saw the same sums. The lowest rank that holds a bad
// gradient names it.
absl::Status Engine::Impl::JudgeNonFinite() {
  const v1::TrainingSpec& training = plan_.job().training();
  update_ = false;
  report_.skipped = true;
  if (training.nonfinite_policy() == "skip") return absl::OkStatus();
  const std::string name = state_->FirstNonFinite();
  const int world = groups_.world->size();
  double key = name.empty() ? 0 : static_cast<double>(world - groups_.world->rank());
  RETURN_IF_ERROR(WaitCounted(
      *groups_.world,
      groups_.world->AllReduce(&key, 1, tensor::DType::kF64, comm::ReduceOp::kMax, *stream_)));
  std::array<char, 256> text{};
  const int owner = key == 0 ? 0 : world - static_cast<int>(key);
  name.copy(text.data(), text.size() - 1);
  RETURN_IF_ERROR(WaitCounted(
      *groups_.world,
      groups_.world->Broadcast(std::as_writable_bytes(std::span(text)), owner, *stream_)));
  const int64_t first = static_cast<int64_t>(step_) * training.global_batch_size();
  const std::string where = key == 0
                                ? std::string("the loss (no gradient is affected)")
                                : absl::StrCat("the gradient of ", text.data(), " on rank ", owner);
  return absl::AbortedError(absl::StrCat(
      "NaN or Inf in ", where, " at step ", step_, ", samples ", first, " to ",
      first + training.global_batch_size() - 1,
      "; nothing was updated. Lower optimizer.learning_rate, look at these samples, or set "
      "training.nonfinite_policy: skip to leave such steps out"));
}

void Engine::Impl::Update(uint32_t bucket) {
  if (!update_) return;
  const v1::OptimizerSpec& spec = plan_.job().optimizer();
  const optim::AdamWOptions options{.learning_rate = report_.learning_rate,
                                    .beta1 = spec.beta1(),
                                    .beta2 = spec.beta2(),
                                    .epsilon = spec.epsilon(),
                                    .weight_decay = spec.weight_decay(),
                                    .step = static_cast<int64_t>(step_) + 1,
                                    .gradient_scale = clip_scale_,
                                    .threads = options_.threads};
  stream_->Issue(
      tensor::Task([state = state_.get(), bucket, at = &options] { state->Update(bucket, *at); }));
  // `options` lives here: the update is over before the next instruction. It is memory-bound and
  // follows NORM's synchronisation, so nothing is lost.
  stream_->Synchronize();
}

comm::Ticket Engine::Impl::Gather(uint32_t index) {
  if (groups_.data == nullptr || !update_ || Mutated(Mutation::kStaleGather)) return {};
  const v1::Bucket& bucket = state_->buckets()[index];
  std::byte* data = state_->Flat(v1::PARAMETER, static_cast<int64_t>(bucket.offset()));
  return groups_.data->AllGather({data, share_offsets_[index], state_->dtype()}, *stream_);
}

}  // namespace trireme::engine
