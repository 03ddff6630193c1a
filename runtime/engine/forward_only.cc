// Programs without backward: evaluation of the validation split, and the next token of a text.
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/philox.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/tensor/element.h"

namespace trireme::engine {

namespace {
constexpr int32_t kNone = -1;  // no token
}  // namespace

absl::StatusOr<double> Engine::Impl::Evaluate(int64_t samples) {
  const int64_t all = dataset_.samples(data::Split::kValidation);
  const int64_t count = samples > 0 ? std::min(samples, all) : all;
  if (count == 0) {
    return absl::FailedPreconditionError(
        "the validation split holds no sample: raise data.validation_fraction or lower "
        "data.sequence_length");
  }
  const int64_t per_replica = static_cast<int64_t>(plan_.evaluation_micro_batches()) *
                              plan_.job().training().micro_batch_size();
  const int64_t replicas = plan_.mesh().data();
  context_ = {.seed = plan_.job().seed(), .step = step_, .training = false};
  double totals[2] = {0, 0};  // loss, counted tokens
  for (int64_t base = 0; base < count; base += per_replica * replicas) {
    if (base > 0 && stop_poll_) {
      ASSIGN_OR_RETURN(const bool go_on, agreement_->AllAgree(!stop_poll_()));
      if (!go_on) return absl::CancelledError("the evaluation was left for a stop");
    }
    const int64_t first = base + groups_.at.data * per_replica;
    RETURN_IF_ERROR(Run(stage().evaluate(), {.split = data::Split::kValidation,
                                             .first = first,
                                             .end = std::min(count, first + per_replica)}));
    if (!holds_last_stage() || groups_.at.tensor != 0) continue;
    totals[0] += block_.loss_sum;
    totals[1] += block_.counted;
  }
  RETURN_IF_ERROR(agreement_->Reduce(totals, comm::ReduceOp::kSum));
  return totals[0] / totals[1];
}

const v1::Instruction* Engine::Impl::LastForward(const v1::Program& program) const {
  const v1::Instruction* last = nullptr;
  for (const v1::Instruction& instruction : program.instructions()) {
    if (instruction.kind() == v1::F) last = &instruction;
  }
  return last;
}

absl::StatusOr<int32_t> Engine::Impl::NextToken(std::span<const int32_t> context,
                                                const Sampling& sampling) {
  const size_t length = static_cast<size_t>(plan_.job().data().sequence_length());
  if (context.empty()) {
    return absl::InvalidArgumentError("generation needs at least one token of context");
  }
  const std::span<const int32_t> window =
      context.subspan(context.size() > length ? context.size() - length : 0);
  context_ = {.seed = plan_.job().seed(),
              .step = step_,
              .training = false,
              .position = static_cast<int64_t>(window.size()) - 1};
  RETURN_IF_ERROR(Run(stage().generate(), {.split = data::Split::kValidation, .context = window}));
  int32_t token = kNone;
  if (holds_last_stage()) {
    ASSIGN_OR_RETURN(token, SampleToken(sampling, static_cast<uint64_t>(context.size())));
  }
  const int root = plan::RankOf(plan_.mesh(), {.pipeline = plan_.mesh().pipeline() - 1});
  RETURN_IF_ERROR(agreement_->Broadcast(std::as_writable_bytes(std::span(&token, 1)), root));
  if (token != kNone) return token;
  return absl::DataLossError(
      "the next token cannot be drawn: its logits are NaN or Inf, so the weights are not those of "
      "a "
      "sound training; take an older checkpoint");
}

// Softmax over all tensor ranks' logits of the row at the position, cut to the top k, drawn by the
// counter-based generator. kNone where the logits are not numbers.
absl::StatusOr<int32_t> Engine::Impl::SampleToken(const Sampling& sampling, uint64_t index) {
  const v1::Instruction* forward = LastForward(stage().generate());
  const StageExecutor& executor = *stages_[forward->virtual_stage()];
  const int64_t vocabulary = graph_.vocab_size;
  const layout::Interval local =
      layout::SplitEvenly(vocabulary, plan_.mesh().tensor(), groups_.at.tensor);
  std::vector<double> row(static_cast<size_t>(vocabulary));
  std::vector<int64_t> offsets;
  for (uint32_t rank = 0; rank < plan_.mesh().tensor(); ++rank) {
    offsets.push_back(layout::SplitEvenly(vocabulary, plan_.mesh().tensor(), rank).begin);
  }
  offsets.push_back(vocabulary);
  OnDevice([&] {
    const tensor::DevicePointer logits =
        executor.BufferAddress(executor.ops().logits_buffer, *forward);
    for (int64_t column = 0; column < local.size(); ++column) {
      row[static_cast<size_t>(local.begin + column)] =
          tensor::ElementAt(state_->dtype(v1::PARAMETER), logits.get(), column);
    }
  });
  if (groups_.tensor != nullptr) {
    RETURN_IF_ERROR(groups_.tensor->WaitHost(
        groups_.tensor->AllGather({row.data(), offsets, tensor::DType::kF64}, *host_stream_),
        options_.deadline));
  }
  if (sampling.vocabulary > 0 && sampling.vocabulary < vocabulary) {
    row.resize(static_cast<size_t>(sampling.vocabulary));
  }
  // NaN has no place in an order. A logit of -Inf is a token that is never drawn.
  const auto no_number = [](double logit) { return std::isnan(logit) || logit == INFINITY; };
  if (std::any_of(row.begin(), row.end(), no_number) ||
      *std::max_element(row.begin(), row.end()) == -INFINITY) {
    return kNone;
  }
  std::vector<int32_t> order(row.size());
  for (size_t id = 0; id < order.size(); ++id) order[id] = static_cast<int32_t>(id);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  if (sampling.temperature <= 0) return order[0];
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < order.size()) {
    order.resize(static_cast<size_t>(sampling.top_k));
  }
  double sum = 0;
  for (int32_t id : order) sum += std::exp((row[id] - row[order[0]]) / sampling.temperature);
  const base::RandomSite site{sampling.seed, base::SiteOf("generate"), 0};
  double rest = site.Uniform(index) * sum;
  for (int32_t id : order) {
    rest -= std::exp((row[id] - row[order[0]]) / sampling.temperature);
    if (rest < 0) return id;
  }
  return order.back();
}

}  // namespace trireme::engine
