// Input and weight gradients in f64 against finite differences of a random linear functional L =
// sum(dy * y) of the forward. Five-point differences of step h: truncation h^4/30 |L'''''|,
// rounding about 2 eps |L| / h. With h = 2^-10, |L| <= 200 and fifth derivatives below 1e4 (norms,
// epsilon 0.05) both stay below 3e-10.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {
namespace {

using graph::Operand;
using graph::OpKind;
using graph::Phase;

constexpr double kStep = 0x1p-10;
constexpr double kTolerance = 1e-9;
constexpr int64_t kProbes = 24;  // elements of an operand that are checked

class Functional {
 public:
  Functional(const KernelRegistry& registry, const OpCase& backward)
      : case_(Forward(backward)),
        kernel_(PrepareKernel(registry, case_.spec)),
        operands_(case_),
        dy_(OpMemory(backward).Get(graph::kDY)) {}

  double At(Operand operand, int64_t index, double shift) const {
    OpMemory memory = operands_;
    memory.SetAt(operand, index, memory.At(operand, index) + shift);
    REQUIRE(memory.Run(*kernel_) == "");
    const std::vector<double> y = memory.Get(graph::kY);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy_[i];
    return sum;
  }

  double Derivative(Operand operand, int64_t index) const {
    const double near = At(operand, index, kStep) - At(operand, index, -kStep);
    const double far = At(operand, index, 2 * kStep) - At(operand, index, -2 * kStep);
    return (8 * near - far) / (12 * kStep);
  }

 private:
  static OpCase Forward(OpCase op_case) {
    op_case.spec.phase = Phase::kForward;
    return op_case;
  }

  OpCase case_;
  std::unique_ptr<Kernel> kernel_;
  OpMemory operands_;
  std::vector<double> dy_;
};

// `before` holds what the gradient is added to, if anything.
void CheckGradient(const Functional& functional, const OpMemory& before, const OpMemory& after,
                   Operand gradient, Operand variable, bool added) {
  if (!after.Has(gradient)) return;
  const int64_t size = static_cast<int64_t>(after.Get(gradient).size());
  const int64_t stride = std::max<int64_t>(1, size / kProbes);
  for (int64_t index = 0; index < size; index += stride) {
    const Operand summand = gradient == graph::kDX ? graph::kBase : gradient;
    const double start = added ? before.At(summand, index) : 0;
    const double numeric = functional.Derivative(variable, index);
    INFO("operand " << gradient << " element " << index);
    CHECK(after.At(gradient, index) - start ==
          Approx(numeric).margin(kTolerance).epsilon(kTolerance));
  }
}

void CheckCase(const KernelRegistry& registry, const OpCase& op_case) {
  INFO(Describe(op_case));
  const OpMemory before = PrepareBackward(registry, op_case);
  OpMemory after = before;
  REQUIRE(after.Run(*PrepareKernel(registry, op_case.spec)) == "");
  const Functional functional(registry, op_case);
  const bool rope = op_case.spec.kind == OpKind::kRope;
  if (rope) CheckGradient(functional, before, after, graph::kDY, graph::kY, false);
  CheckGradient(functional, before, after, graph::kDX, graph::kX, before.Has(graph::kBase));
  CheckGradient(functional, before, after, graph::kDW, graph::kW, op_case.accumulate);
  // The bias gradient of a case without bias is not asked for.
  CheckGradient(functional, before, after, graph::kDB, graph::kB, op_case.accumulate);
}

TEST_CASE("reference: gradients are the derivatives of the forward") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  for (int kind = 0; kind < static_cast<int>(OpKind::kLmHeadLoss); ++kind) {
    int checked = 0;
    for (Phase phase : {Phase::kInputGrad, Phase::kWeightGrad}) {
      for (const OpCase& op_case :
           VariedCases(static_cast<OpKind>(kind), phase, tensor::DType::kF64)) {
        CheckCase(registry, op_case);
        ++checked;
      }
    }
    CHECK(checked >= 15);
  }
}

// L = loss_scale * sum over counted rows of (lse - target logit), through LmHeadLoss and
// LossCombine.
double Loss(const KernelRegistry& registry, OpMemory& head) {
  REQUIRE(head.Run(*PrepareKernel(registry, head.op_case().spec)) == "");
  OpCase combine = head.op_case();
  combine.spec.kind = OpKind::kLossCombine;
  OpMemory sum(combine);
  sum.Set(graph::kX, head.Get(graph::kStats));
  sum.SetAt(graph::kDB, 0, 0);
  sum.tokens() = head.tokens();
  REQUIRE(sum.Run(*PrepareKernel(registry, combine.spec)) == "");
  return sum.At(graph::kDB, 0) * combine.loss_scale;
}

TEST_CASE("reference: the loss's gradients are the derivatives of the loss") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  for (const OpCase& varied :
       VariedCases(OpKind::kLmHeadLoss, Phase::kForward, tensor::DType::kF64)) {
    if (varied.spec.cols == 0) continue;  // no vocabulary: there is no loss
    OpCase op_case = varied;
    op_case.spec.vocab_begin = 0;
    op_case.global_vocab = op_case.spec.cols;
    INFO(Describe(op_case));
    OpMemory forward(op_case);
    const std::vector<int32_t> targets = forward.tokens();
    OpMemory first = forward;
    Loss(registry, first);

    op_case.spec.phase = Phase::kInputGrad;
    OpMemory input(op_case);
    input.tokens() = targets;
    input.Set(graph::kY, first.Get(graph::kY));
    for (int64_t r = 0; r < op_case.spec.rows; ++r) {
      input.SetAt(graph::kBase, r,
                  first.At(graph::kStats, 3 * r) + std::log(first.At(graph::kStats, 3 * r + 1)));
    }
    REQUIRE(input.Run(*PrepareKernel(registry, op_case.spec)) == "");
    op_case.spec.phase = Phase::kWeightGrad;
    op_case.accumulate = false;
    OpMemory weight(op_case);
    weight.Set(graph::kY, input.Get(graph::kY));
    REQUIRE(weight.Run(*PrepareKernel(registry, op_case.spec)) == "");

    for (const auto& of : {std::pair{graph::kDX, graph::kX}, std::pair{graph::kDW, graph::kW}}) {
      // Not bound as names: clang 14 takes none into a lambda.
      const auto gradient = of.first;
      const auto variable = of.second;
      const OpMemory& after = gradient == graph::kDX ? input : weight;
      const int64_t size = static_cast<int64_t>(after.Get(gradient).size());
      for (int64_t index = 0; index < size; index += std::max<int64_t>(1, size / 12)) {
        const auto loss = [&](double shift) {
          OpMemory moved = forward;
          moved.SetAt(variable, index, moved.At(variable, index) + shift);
          return Loss(registry, moved);
        };
        const double numeric =
            (8 * (loss(kStep) - loss(-kStep)) - (loss(2 * kStep) - loss(-2 * kStep))) /
            (12 * kStep);
        CHECK(after.At(gradient, index) == Approx(numeric).margin(kTolerance).epsilon(kTolerance));
      }
    }
    // Rows that are not counted have no gradient at all.
    for (int64_t r = 0; r < op_case.spec.rows; ++r) {
      if (targets[static_cast<size_t>(r)] >= 0) continue;
      for (int64_t c = 0; c < op_case.spec.cols; ++c) {
        CHECK(input.At(graph::kY, r * op_case.spec.cols + c) == 0);
      }
    }
  }
}

// f32 gradients are the f64 ones to f32 rounding: sums have at most 64 terms below 5.
TEST_CASE("reference: f32 gradients agree with f64") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  for (int kind = 0; kind < static_cast<int>(OpKind::kLossCombine); ++kind) {
    for (Phase phase : {Phase::kInputGrad, Phase::kWeightGrad}) {
      for (const OpCase& op_case :
           VariedCases(static_cast<OpKind>(kind), phase, tensor::DType::kF32)) {
        INFO(Describe(op_case));
        const Difference difference = CompareKernels(registry, registry, op_case, 1.0);
        INFO(difference.where);
        CHECK(difference.worst <= 64 * 5 * 0x1p-24);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
