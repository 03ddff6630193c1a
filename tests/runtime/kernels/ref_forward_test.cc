// The reference's forward against the operators' definitions, over all shapes, in both dtypes.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/runtime/kernels/reference_oracle.h"

namespace trireme::kernels {
namespace {

using graph::OpKind;

double WorstError(const std::vector<double>& actual, const std::vector<long double>& expected) {
  REQUIRE(actual.size() == expected.size());
  double worst = 0;
  for (size_t index = 0; index < actual.size(); ++index) {
    if (std::isinf(actual[index]) && actual[index] == static_cast<double>(expected[index]))
      continue;
    const double error = static_cast<double>(std::abs(actual[index] - expected[index])) /
                         std::max(1.0, std::abs(static_cast<double>(expected[index])));
    worst = error <= worst ? worst : error;
  }
  return worst;
}

// Values are below 1, sums have at most 130 terms and their condition is at most 1 + 2 |x|:
// rounding stays below 130 eps, and 1 / (1 - p) and 1 / sqrt(epsilon) multiply it by less than 5.
double Tolerance(tensor::DType dtype) {
  return dtype == tensor::DType::kF64 ? 130 * 5 * 0x1p-53 : 130 * 5 * 0x1p-24;
}

TEST_CASE("reference: the forward is what the operator's definition says") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  for (int kind = 0; kind <= static_cast<int>(OpKind::kLossCombine); ++kind) {
    for (tensor::DType dtype : {tensor::DType::kF64, tensor::DType::kF32}) {
      const auto cases = VariedCases(static_cast<OpKind>(kind), graph::Phase::kForward, dtype);
      REQUIRE(cases.size() >= 15);
      for (const OpCase& op_case : cases) {
        INFO(Describe(op_case));
        OpMemory memory(op_case);
        const OracleResult expected = Oracle(memory);
        const double old_loss = memory.Has(graph::kDB) ? memory.At(graph::kDB, 0) : 0;
        REQUIRE(memory.Run(*PrepareKernel(registry, op_case.spec)) == "");
        CHECK(WorstError(memory.Get(graph::kY), expected.y) <= Tolerance(dtype));
        if (memory.Has(graph::kStats)) {
          CHECK(WorstError(memory.Get(graph::kStats), expected.stats) <= Tolerance(dtype));
        }
        if (memory.Has(graph::kDB)) {
          CHECK(WorstError(memory.Get(graph::kDB), {old_loss + expected.loss}) <= Tolerance(dtype));
        }
      }
    }
  }
}

TEST_CASE("reference: without training nothing is dropped") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  for (OpKind kind : {OpKind::kAttention, OpKind::kResidualAdd}) {
    for (graph::Phase phase :
         {graph::Phase::kForward, graph::Phase::kInputGrad, graph::Phase::kWeightGrad}) {
      const auto cases = VariedCases(kind, phase, tensor::DType::kF64);
      if (cases.empty()) continue;
      const OpCase& dropping = cases[2];
      REQUIRE(dropping.spec.dropout_p > 0);
      REQUIRE(dropping.bias);
      OpCase evaluating = dropping;
      evaluating.training = false;
      OpCase plain = dropping;
      plain.spec.dropout_p = 0;
      OpMemory a = PrepareBackward(registry, evaluating);
      OpMemory b = PrepareBackward(registry, plain);
      OpMemory c = PrepareBackward(registry, dropping);
      REQUIRE(a.Run(*PrepareKernel(registry, evaluating.spec)) == "");
      REQUIRE(b.Run(*PrepareKernel(registry, plain.spec)) == "");
      REQUIRE(c.Run(*PrepareKernel(registry, dropping.spec)) == "");
      CHECK(Compare(a, b).worst == 0);
      CHECK(Compare(c, b).worst > 0.1);
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
