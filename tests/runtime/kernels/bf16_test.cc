// bf16: the reference against f64 on the same values, and the conversions of the cpu loops.
#include "runtime/tensor/bf16.h"

#include <hwy/targets.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "runtime/kernels/cpu/row_loops.h"
#include "tests/runtime/kernels/bounds.h"

namespace trireme::kernels {
namespace {

using graph::OpKind;
using graph::Phase;
using tensor::BFloat16;
using tensor::DType;

// What is stored in f32 is a sum of at most 64 terms below 5, as where f32 is compared with f64.
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
        CHECK(Beyond(exact, actual, 64 * 5 * 0x1p-24) == "");
        ++cases;
      }
    }
  }
  CHECK(cases > 500);
}

// Every upper half, with lower halves at, beside and far from a tie.
TEST_CASE("cpu loops round to bf16 as BFloat16 does, to the bit, on every instruction set") {
  std::vector<float> wide;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu, 0x1234u}) {
      wide.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  const auto count = static_cast<int64_t>(wide.size());
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    INFO(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    std::vector<BFloat16> narrow(wide.size());
    std::vector<float> back(wide.size());
    cpu::RowLoopsOf<BFloat16>().narrow(wide.data(), narrow.data(), count);
    cpu::RowLoopsOf<BFloat16>().widen(narrow.data(), back.data(), count);
    int64_t wrong = 0;
    for (size_t i = 0; i < wide.size(); ++i) {
      const BFloat16 expected(wide[i]);
      wrong += narrow[i] != expected;
      wrong += std::bit_cast<uint32_t>(back[i]) != uint32_t{expected.bits} << 16;
    }
    CHECK(wrong == 0);
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace trireme::kernels
