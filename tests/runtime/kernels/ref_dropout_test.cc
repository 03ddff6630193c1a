// A dropout mask belongs to the elements of the global tensor: cutting rows, heads or samples
// differently, or asking for the gradient, never changes it.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/base/philox.h"
#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {
namespace {

using graph::OpKind;
using graph::Phase;

constexpr int64_t kCols = 9;
constexpr int64_t kMaskTokens = 5;

OpCase ResidualCase(int64_t rows, int64_t row_begin, int64_t first_sample) {
  OpCase op_case;
  op_case.spec.kind = OpKind::kResidualAdd;
  op_case.spec.dtype = tensor::DType::kF64;
  op_case.spec.rows = rows;
  op_case.spec.cols = kCols;
  op_case.spec.tokens = kMaskTokens;
  op_case.spec.row_begin = row_begin;
  op_case.spec.dropout_p = 0.4;
  op_case.spec.site = base::SiteOf("site");
  op_case.spec = WithLeadingDimensions(op_case.spec, 2);
  op_case.bias = op_case.residual = false;
  op_case.first_sample = first_sample;
  return op_case;
}

// Factors by which elements equal to 1 are multiplied.
std::vector<double> Factors(const KernelRegistry& registry, OpCase op_case) {
  OpMemory memory(op_case);
  const bool forward = op_case.spec.phase == Phase::kForward;
  memory.Set(forward ? graph::kX : graph::kDY,
             std::vector<double>(static_cast<size_t>(op_case.spec.rows * kCols), 1.0));
  REQUIRE(memory.Run(*PrepareKernel(registry, op_case.spec)) == "");
  return memory.Get(forward ? graph::kY : graph::kDX);
}

TEST_CASE("dropout: the mask of the residual add does not depend on who holds which rows") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  // Samples 2 .. 5 at once, against two micro-batches of two samples, each cut unevenly in three.
  const std::vector<double> whole = Factors(registry, ResidualCase(4 * kMaskTokens, 0, 2));
  std::vector<double> parts;
  for (int64_t first_sample : {2, 4}) {
    const int64_t cuts[] = {0, 3, 4, 2 * kMaskTokens};
    for (int part = 0; part < 3; ++part) {
      const OpCase op_case = ResidualCase(cuts[part + 1] - cuts[part], cuts[part], first_sample);
      const std::vector<double> factors = Factors(registry, op_case);
      parts.insert(parts.end(), factors.begin(), factors.end());
    }
  }
  CHECK(whole == parts);
  OpCase gradient = ResidualCase(4 * kMaskTokens, 0, 2);
  gradient.spec.phase = Phase::kInputGrad;
  CHECK(Factors(registry, gradient) == whole);

  int64_t dropped = 0;
  for (double factor : whole) {
    CHECK((factor == 0 || factor == Approx(1 / 0.6).epsilon(1e-15)));
    dropped += factor == 0 ? 1 : 0;
  }
  // 180 elements, p = 0.4: within 5 standard deviations of 72.
  CHECK(std::abs(static_cast<double>(dropped) - 72) < 5 * std::sqrt(180 * 0.4 * 0.6));
}

TEST_CASE("dropout: another step, seed, site or sample has another mask") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  const OpCase op_case = ResidualCase(2 * kMaskTokens, 0, 0);
  const std::vector<double> first = Factors(registry, op_case);
  OpCase other = op_case;
  other.step = 1;
  CHECK(Factors(registry, other) != first);
  other = op_case;
  other.seed = 2;
  CHECK(Factors(registry, other) != first);
  other = op_case;
  other.spec.site = base::SiteOf("other site");
  CHECK(Factors(registry, other) != first);
  CHECK(Factors(registry, ResidualCase(2 * kMaskTokens, 0, 2)) != first);
}

TEST_CASE("dropout: the masked bias gradient sums what the input gradient lets through") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  OpCase op_case = ResidualCase(7, 3, 1);
  op_case.spec.phase = Phase::kInputGrad;
  OpMemory input(op_case);
  REQUIRE(input.Run(*PrepareKernel(registry, op_case.spec)) == "");
  op_case.spec.phase = Phase::kWeightGrad;
  op_case.bias = true;
  OpMemory weight(op_case);
  REQUIRE(weight.Run(*PrepareKernel(registry, op_case.spec)) == "");
  for (int64_t c = 0; c < kCols; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < 7; ++r) sum += input.At(graph::kDX, r * kCols + c);
    CHECK(weight.At(graph::kDB, c) == sum);  // the same numbers in the same order
  }
}

// Two samples of four heads with two key/value heads, and the second group of heads of the second
// sample alone.
TEST_CASE("dropout: attention masks are the same for a rank's heads and a rank's samples") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  constexpr int64_t kD = 4;
  OpCase whole;
  whole.spec.kind = OpKind::kAttention;
  whole.spec.dtype = tensor::DType::kF64;
  whole.spec.rows = 2 * kMaskTokens;
  whole.spec.tokens = kMaskTokens;
  whole.spec.heads = whole.spec.global_heads = 4;
  whole.spec.kv_heads = 2;
  whole.spec.head_dim = kD;
  whole.spec.cols = 4 * kD;
  whole.spec.dropout_p = 0.4;
  whole.first_sample = 6;
  whole.spec = WithLeadingDimensions(whole.spec, 0);
  OpCase part = whole;
  part.spec.rows = kMaskTokens;
  part.spec.heads = part.spec.head_begin = 2;
  part.spec.kv_heads = 1;
  part.spec.cols = 2 * kD;
  part.first_sample = 7;
  part.spec = WithLeadingDimensions(part.spec, 1);

  OpMemory all(whole);
  OpMemory some(part);
  // Columns of the packed row: q heads 2 and 3, k head 1, v head 1.
  for (int64_t t = 0; t < kMaskTokens; ++t) {
    for (int64_t c = 0; c < 4 * kD; ++c) {
      const int64_t from = c < 2 * kD ? 2 * kD + c : (c < 3 * kD ? 3 * kD + c : 4 * kD + c);
      some.SetAt(graph::kX, t * 4 * kD + c, all.At(graph::kX, (kMaskTokens + t) * 8 * kD + from));
    }
  }
  REQUIRE(all.Run(*PrepareKernel(registry, whole.spec)) == "");
  REQUIRE(some.Run(*PrepareKernel(registry, part.spec)) == "");
  for (int64_t t = 0; t < kMaskTokens; ++t) {
    for (int64_t c = 0; c < 2 * kD; ++c) {
      CHECK(some.At(graph::kY, t * 2 * kD + c) ==
            all.At(graph::kY, (kMaskTokens + t) * 4 * kD + 2 * kD + c));
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
