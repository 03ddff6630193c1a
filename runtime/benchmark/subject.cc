#include "runtime/benchmark/subject.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/benchmark/numbers.h"
#include "runtime/checksum/lane_sums.h"
#include "runtime/graph/op_schema.h"
#include "runtime/kernels/kernel.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/adamw_slots.h"
#include "runtime/tensor/bf16.h"

namespace trireme::benchmark {
namespace {
using graph::OperandSchema;
using tensor::DType;

constexpr size_t kRotatedBytes = size_t{128} << 20;
constexpr size_t kMostCopies = 12;
constexpr size_t kScratchLimitBytes = size_t{1} << 30;

class OperatorSubject : public Subject {
 public:
  static absl::StatusOr<std::unique_ptr<Subject>> Make(const OperatorLine& line, int threads) {
    kernels::KernelRegistry registry;
    kernels::RegisterCpuKernels(registry);
    std::unique_ptr<OperatorSubject> subject(new OperatorSubject(line));
    ASSIGN_OR_RETURN(subject->kernel_,
                     registry.Prepare(line.spec, {.scratch_limit_bytes = kScratchLimitBytes,
                                                  .threads = threads}));
    ASSIGN_OR_RETURN(subject->memory_,
                     MapNumbers(subject->copies_ * subject->bytes_, line.spec.dtype, threads));
    ASSIGN_OR_RETURN(subject->scratch_,
                     MapNumbers(subject->kernel_->ScratchBytes(), DType::kF32, threads));
    return subject;
  }

  void Run() override {
    graph::OpCall call;
    std::byte* next = memory_.data() + copy_ * bytes_;
    copy_ = (copy_ + 1) % copies_;
    for (const OperandSchema& operand : Operands()) {
      call.operand[operand.name] = next;
      next += OperandBytes(operand);
    }
    call.operand[graph::kTokens] = tokens_.data();
    call.operand[graph::kBase] = line_.has_base ? call.operand[graph::kDX] : nullptr;
    if (line_.spec.kind == graph::OpKind::kLmHeadLoss) call.operand[graph::kBase] = lse_.data();
    call.loss_scale = 1e-3;
    // Its table is the head's weight, whose gradient is there already.
    call.accumulate = line_.spec.kind == graph::OpKind::kEmbedding;
    call.scratch = scratch_.span();
    kernel_->Run(call);
  }

 private:
  explicit OperatorSubject(const OperatorLine& line)
      : line_(line), lse_(static_cast<size_t>(line.spec.rows), 12.0F) {
    for (const OperandSchema& operand : Operands()) bytes_ += OperandBytes(operand);
    copies_ = std::clamp<size_t>(kRotatedBytes / bytes_, 1, kMostCopies);
    std::minstd_rand generator(3);
    tokens_.resize(static_cast<size_t>(line.spec.rows));
    for (int32_t& token : tokens_) {
      token = static_cast<int32_t>(generator() % static_cast<uint32_t>(line.spec.vocab_rows));
    }
  }

  std::span<const OperandSchema> Operands() const {
    return graph::SchemaOf(line_.spec.kind).Operands(line_.spec.phase);
  }
  // Whole pages and some lines: operands do not begin at the same place of one.
  size_t OperandBytes(const OperandSchema& operand) const {
    const size_t bytes = static_cast<size_t>(operand.shape(line_.spec).Span()) *
                         tensor::SizeOf(operand.DTypeIn(line_.spec));
    return (bytes + 4095) / 4096 * 4096 + 256;
  }

  OperatorLine line_;
  std::unique_ptr<kernels::Kernel> kernel_;
  size_t bytes_ = 0, copies_ = 1, copy_ = 0;
  tensor::HugeMemory memory_, scratch_;
  std::vector<int32_t> tokens_;
  std::vector<float> lse_;
};

// Masters, gradients, two moments, and with bf16 or slots the weights. With slots another three
// arrays, read and written in turns.
class OptimizerSubject : public Subject {
 public:
  static absl::StatusOr<std::unique_ptr<Subject>> Make(const OperatorLine& line, int threads) {
    std::unique_ptr<OptimizerSubject> subject(new OptimizerSubject(line, threads));
    ASSIGN_OR_RETURN(
        subject->memory_,
        MapNumbers((subject->slots_ ? 8 : 5) * kCount * sizeof(float), DType::kF32, threads));
    // Second moments are not negative.
    const std::span<float> moments = subject->Array(3);
    std::fill(moments.begin(), moments.end(), 1e-4F);
    return subject;
  }

  void Run() override {
    if (slots_) {
      return line_.spec.dtype == DType::kBf16 ? StepToSlot<tensor::BFloat16>()
                                              : StepToSlot<float>();
    }
    if (line_.kind == LineKind::kSumOfSquares) {
      optim::SumOfSquares<float>(Array(1), options_.threads);
      return;
    }
    if (line_.spec.dtype == DType::kBf16) {
      const std::span weight(reinterpret_cast<tensor::BFloat16*>(Array(4).data()), kCount);
      return optim::AdamW(Array(0), Array(1), Array(2), Array(3), weight, options_);
    }
    optim::AdamW<float>(Array(0), Array(1), Array(2), Array(3), options_);
  }

 private:
  static constexpr size_t kCount = kOptimizerParameters;

  OptimizerSubject(const OperatorLine& line, int threads)
      : line_(line), slots_(line.kind == LineKind::kAdamWSlots) {
    options_.learning_rate = 1e-4;
    options_.threads = threads;
  }
  template <typename Weight>
  void StepToSlot() {
    optim::SlotStep<float, Weight> step{
        .gradient = Array(1),
        .weight = {reinterpret_cast<Weight*>(Array(4).data()), kCount},
        .sums = {sums_[0], sums_[1], sums_[2]}};
    const optim::StateSpans<float> here{Array(0), Array(2), Array(3)};
    const optim::StateSpans<float> there{Array(5), Array(6), Array(7)};
    const optim::StateSpans<float>& from = there_ ? there : here;
    step.from = {from.parameter, from.moment1, from.moment2};
    step.to = there_ ? here : there;
    there_ = !there_;
    optim::AdamW(step, options_);
  }
  static std::vector<checksum::LaneSums> Pieces() {
    return std::vector<checksum::LaneSums>(kCount * sizeof(float) / checksum::kSummedBytes);
  }
  std::span<float> Array(size_t index) const {
    return {reinterpret_cast<float*>(memory_.data()) + index * kCount, kCount};
  }

  OperatorLine line_;
  bool slots_;
  optim::AdamWOptions options_;
  tensor::HugeMemory memory_;
  // As they are from step to step; nobody reads them here.
  std::array<std::vector<checksum::LaneSums>, 3> sums_{Pieces(), Pieces(), Pieces()};
  bool there_ = false;  // the state is in the second slot
};

}  // namespace

absl::StatusOr<std::unique_ptr<Subject>> MakeSubject(const OperatorLine& line, int threads) {
  return line.kind == LineKind::kOperator ? OperatorSubject::Make(line, threads)
                                          : OptimizerSubject::Make(line, threads);
}

}  // namespace trireme::benchmark
