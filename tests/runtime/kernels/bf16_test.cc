// Operators in bf16 against the f64 reference on the same values. eps = 2^-8, half a unit of bf16:
// a value that is computed wider and rounded once when stored errs by eps of itself.
#include "runtime/tensor/bf16.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {
namespace {

using graph::Operand;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using tensor::BFloat16;
using tensor::DType;

constexpr double kHalfUnit = 0x1p-8;
// Beside it: what is summed in f32 (64 terms below 5, as where f32 is compared with f64).
constexpr double kSumOfF32 = 64 * 5 * 0x1p-24;

// Sum over each row of |values|, [rows][cols].
std::vector<double> RowSums(const OpMemory& memory, Operand operand) {
  const OperandShape shape = *ShapeOf(memory.op_case(), operand);
  std::vector<double> sums(static_cast<size_t>(shape.rows));
  for (int64_t i = 0; i < shape.rows * shape.cols; ++i) {
    sums[static_cast<size_t>(i / shape.cols)] += std::abs(memory.At(operand, i));
  }
  return sums;
}

// Only the head computes on with what it has stored: its statistics are those of rounded logits,
// each of which errs by eps of itself, so that an exponential errs by eps of the two greatest in
// its exponent; and dx is a sum of rounded gradients of logits times weights below 1.
double StoredOnTheWay(const OpMemory& exact, Operand operand, int64_t index) {
  const OpSpec& spec = exact.op_case().spec;
  if (spec.kind != OpKind::kLmHeadLoss) return 0;
  if (operand == graph::kStats && index % 3 == 1) {
    double greatest = 0;
    for (int64_t c = 0; c < spec.cols; ++c) {
      greatest = std::max(greatest, std::abs(exact.At(graph::kY, index / 3 * spec.cols + c)));
    }
    return std::abs(exact.At(operand, index)) * std::expm1(2 * kHalfUnit * greatest);
  }
  if (operand == graph::kStats) return kHalfUnit * std::abs(exact.At(operand, index));
  if (operand != graph::kDX) return 0;
  return kHalfUnit * RowSums(exact, graph::kY)[static_cast<size_t>(index / spec.inner)];
}

void CheckStored(const OpMemory& exact, const OpMemory& actual) {
  const OpSpec& spec = actual.op_case().spec;
  for (int name = 0; name < graph::kOperandCount; ++name) {
    const auto operand = static_cast<Operand>(name);
    const auto shape = ShapeOf(exact.op_case(), operand);
    if (!shape || !shape->written) continue;
    const double rounding = StoredIn(spec, operand) == DType::kBf16 ? kHalfUnit : 0;
    for (int64_t i = 0; i < shape->rows * shape->cols; ++i) {
      const double a = exact.At(operand, i), b = actual.At(operand, i);
      const double bound = rounding * std::abs(a) + kSumOfF32 + StoredOnTheWay(exact, operand, i);
      const bool near = a == b || std::abs(a - b) <= bound;  // false for a NaN
      INFO("operand " << name << "[" << i << "]: " << a << " against " << b << ", bound " << bound);
      if (!near) CHECK(near);
    }
  }
}

TEST_CASE("reference: bf16 is the f64 of the same values, rounded once where it is stored") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  int64_t cases = 0;
  for (int kind = 0; kind <= static_cast<int>(OpKind::kLossCombine); ++kind) {
    for (Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
      for (const OpCase& op_case : VariedCases(static_cast<OpKind>(kind), phase, DType::kBf16)) {
        INFO(Describe(op_case));
        OpMemory exact = ExactOperands(registry, op_case);
        OpMemory actual = Converted(exact, DType::kBf16);
        REQUIRE(exact.Run(*PrepareKernel(registry, exact.op_case().spec)) == "");
        REQUIRE(actual.Run(*PrepareKernel(registry, op_case.spec)) == "");
        CheckStored(exact, actual);
        ++cases;
      }
    }
  }
  CHECK(cases > 500);
}

}  // namespace
}  // namespace trireme::kernels
