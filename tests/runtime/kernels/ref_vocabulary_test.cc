// Embedding and loss cut over the vocabulary in three uneven parts, one of them possibly empty,
// equal the whole.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {
namespace {

using graph::OpKind;
using graph::Phase;

constexpr int64_t kVocabulary = 23;
constexpr int64_t kLogitRows = 12;
constexpr int64_t kInner = 5;
// The sums of a row have 23 terms, of different order in the cuts.
constexpr double kLogitTolerance = 4 * 23 * 0x1p-53;

OpCase Part(OpKind kind, Phase phase, int64_t begin, int64_t end) {
  OpCase op_case;
  op_case.spec.kind = kind;
  op_case.spec.phase = phase;
  op_case.spec.dtype = tensor::DType::kF64;
  op_case.spec.rows = kLogitRows;
  op_case.spec.inner = kInner;
  op_case.spec.cols = kind == OpKind::kEmbedding ? kInner : end - begin;
  op_case.spec.vocab_begin = begin;
  op_case.spec.vocab_rows = end - begin;
  op_case.spec = WithLeadingDimensions(op_case.spec, 1);
  op_case.global_vocab = kVocabulary;
  return op_case;
}

// Rows begin .. end of the whole's weight [V, inner] (kOutIn).
void CutWeight(const OpMemory& whole, OpMemory& part, graph::Operand operand) {
  const int64_t begin = part.op_case().spec.vocab_begin;
  for (int64_t index = 0; index < part.op_case().spec.vocab_rows * kInner; ++index) {
    part.SetAt(operand, index, whole.At(operand, begin * kInner + index));
  }
}

void RunCut(const KernelRegistry& registry, OpMemory& memory) {
  REQUIRE(memory.Run(*PrepareKernel(registry, memory.op_case().spec)) == "");
}

struct LossRun {
  std::vector<double> dx = std::vector<double>(kLogitRows * kInner);  // summed over parts
  std::vector<double> dw;                                             // [V, inner]
  std::vector<double> lse;
  double loss = 0;
};

// What weight row `row` begins with instead, if row >= 0.
struct Plant {
  int64_t row = -1;
  double value = 0;
};

LossRun RunLoss(const KernelRegistry& registry, const std::vector<int64_t>& cuts,
                const Plant& planted = {}) {
  LossRun result;
  OpMemory whole(Part(OpKind::kLmHeadLoss, Phase::kForward, 0, kVocabulary));
  if (planted.row >= 0) whole.SetAt(graph::kW, planted.row * kInner, planted.value);
  std::vector<OpMemory> parts;
  std::vector<double> shares;
  for (size_t rank = 0; rank + 1 < cuts.size(); ++rank) {
    parts.emplace_back(Part(OpKind::kLmHeadLoss, Phase::kForward, cuts[rank], cuts[rank + 1]));
    CutWeight(whole, parts.back(), graph::kW);
    parts.back().tokens() = whole.tokens();
    RunCut(registry, parts.back());
    const std::vector<double> share = parts.back().Get(graph::kStats);
    shares.insert(shares.end(), share.begin(), share.end());
  }
  OpCase combine = Part(OpKind::kLossCombine, Phase::kForward, 0, kVocabulary);
  combine.spec.tensor_ranks = static_cast<int64_t>(parts.size());
  OpMemory sum(combine);
  sum.Set(graph::kX, shares);
  sum.SetAt(graph::kDB, 0, 100);
  sum.tokens() = whole.tokens();
  RunCut(registry, sum);
  result.loss = sum.At(graph::kDB, 0) - 100;
  result.lse = sum.Get(graph::kY);
  for (const OpMemory& forward : parts) {
    const graph::OpSpec& spec = forward.op_case().spec;
    const int64_t begin = spec.vocab_begin;
    const int64_t end = begin + spec.vocab_rows;
    OpMemory input(Part(OpKind::kLmHeadLoss, Phase::kInputGrad, begin, end));
    CutWeight(whole, input, graph::kW);
    input.tokens() = whole.tokens();
    input.Set(graph::kY, forward.Get(graph::kY));
    input.Set(graph::kBase, result.lse);
    RunCut(registry, input);
    OpMemory weight(Part(OpKind::kLmHeadLoss, Phase::kWeightGrad, begin, end));
    weight.Set(graph::kY, input.Get(graph::kY));
    RunCut(registry, weight);
    for (size_t i = 0; i < result.dx.size(); ++i) {
      result.dx[i] += input.At(graph::kDX, static_cast<int64_t>(i));
    }
    const std::vector<double> dw = weight.Get(graph::kDW);
    result.dw.insert(result.dw.end(), dw.begin(), dw.end());
  }
  return result;
}

void CheckClose(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i)
    CHECK(a[i] == Approx(b[i]).margin(kLogitTolerance).epsilon(kLogitTolerance));
}

TEST_CASE("vocabulary: a loss over parts of the vocabulary is the loss over all of it") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  const LossRun whole = RunLoss(registry, {0, kVocabulary});
  CHECK(whole.loss > 0);
  for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, 9, 10, kVocabulary},
                                           {0, 0, 20, kVocabulary},
                                           {0, 11, kVocabulary, kVocabulary}}) {
    const LossRun parts = RunLoss(registry, cuts);
    CHECK(parts.loss == Approx(whole.loss).epsilon(kLogitRows * kLogitTolerance));
    CheckClose(parts.lse, whole.lse);
    CheckClose(parts.dx, whole.dx);
    CheckClose(parts.dw, whole.dw);
  }
}

// A number that is none in one rank's part of the head must stop the run, so every row's
// log-sum-exp and the loss have to show it, whichever rank holds it and beside an empty part.
TEST_CASE("vocabulary: a NaN or infinity in any rank's part reaches the loss") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int64_t row : {0, 9, 22}) {
    for (double value : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity}) {
      for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, kVocabulary},
                                               {0, 9, 9, kVocabulary},
                                               {0, 0, 20, kVocabulary}}) {
        const LossRun run = RunLoss(registry, cuts, {row, value});
        INFO("row " << row << " value " << value << " parts " << cuts.size() - 1);
        CHECK(!std::isfinite(run.loss));
        if (!std::isnan(value)) continue;
        CHECK(std::isnan(run.loss));
        for (double lse : run.lse) CHECK(std::isnan(lse));
      }
    }
  }
}

TEST_CASE(
    "vocabulary: the parts of an embedding add up to it, and its gradients follow one another") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  OpMemory whole(Part(OpKind::kEmbedding, Phase::kForward, 0, kVocabulary));
  OpMemory whole_gradient(Part(OpKind::kEmbedding, Phase::kWeightGrad, 0, kVocabulary));
  std::vector<double> sum(kLogitRows * kInner);
  std::vector<double> dw;
  const int64_t cuts[] = {0, 9, 9, kVocabulary};
  for (int rank = 0; rank < 3; ++rank) {
    OpMemory part(Part(OpKind::kEmbedding, Phase::kForward, cuts[rank], cuts[rank + 1]));
    CutWeight(whole, part, graph::kW);
    part.tokens() = whole.tokens();
    RunCut(registry, part);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part.At(graph::kY, static_cast<int64_t>(i));
    OpMemory gradient(Part(OpKind::kEmbedding, Phase::kWeightGrad, cuts[rank], cuts[rank + 1]));
    RunCut(registry, gradient);
    const std::vector<double> share = gradient.Get(graph::kDW);
    dw.insert(dw.end(), share.begin(), share.end());
  }
  RunCut(registry, whole);
  RunCut(registry, whole_gradient);
  CHECK(whole.Get(graph::kY) == sum);
  CHECK(whole_gradient.Get(graph::kDW) == dw);
}

// exp of logits this large overflows; the loss must not.
TEST_CASE("vocabulary: large logits neither overflow nor lose the loss") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  OpCase combine = Part(OpKind::kLossCombine, Phase::kForward, 0, kVocabulary);
  combine.spec.tensor_ranks = 2;
  combine.spec.rows = 1;
  OpMemory sum(combine);
  sum.Set(graph::kX, {800, 1, 800, 803, 2, 0});
  sum.SetAt(graph::kDB, 0, 0);
  sum.tokens() = {1};
  RunCut(registry, sum);
  const double lse = 803 + std::log(2 + std::exp(-3.0));
  CHECK(sum.At(graph::kY, 0) == Approx(lse).epsilon(1e-15));
  CHECK(sum.At(graph::kDB, 0) == Approx(lse - 800).epsilon(1e-12));
}

}  // namespace
}  // namespace trireme::kernels
