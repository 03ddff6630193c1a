// One operator cut over rows (sequence parallelism) or heads (tensor parallelism) in uneven parts,
// an empty one among them, equals the whole to the bit: positions, angles and dropout masks belong
// to the global tensor.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/base/philox.h"
#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {
namespace {

using graph::Operand;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;

constexpr int64_t kTokens = 5;
constexpr int64_t kRows = 2 * kTokens;
constexpr int64_t kHeadDim = 4;
constexpr int64_t kGroup = 2;  // query heads of a key/value head

OpCase DroppingCase(OpKind kind, Phase phase) {
  OpCase op_case;
  OpSpec& spec = op_case.spec;
  spec.kind = kind;
  spec.phase = phase;
  spec.dtype = tensor::DType::kF64;
  spec.rows = kRows;
  spec.tokens = kTokens;
  spec.site = base::SiteOf("cut");
  if (kind != OpKind::kPositionEmbedding && kind != OpKind::kRope) spec.dropout_p = 0.4;
  op_case.first_sample = 3;
  op_case.step = 2;
  return op_case;
}

OpCase RowCase(OpKind kind, Phase phase, int64_t begin, int64_t end) {
  OpCase op_case = DroppingCase(kind, phase);
  OpSpec& spec = op_case.spec;
  spec.row_begin = begin;
  spec.rows = end - begin;
  spec.cols = 7;
  spec.weight_rows = kTokens + 1;
  spec.heads = kGroup;
  spec.kv_heads = 1;
  spec.head_dim = kHeadDim;
  spec.rope_theta = 10000;
  spec = WithLeadingDimensions(spec, begin % 3);
  op_case.accumulate = true;
  return op_case;
}

void Run(const KernelRegistry& registry, OpMemory& memory) {
  INFO(Describe(memory.op_case()));
  REQUIRE(memory.Run(*PrepareKernel(registry, memory.op_case().spec)) == "");
}

TEST_CASE("cut: rows of a part are the rows of the whole, and weight gradients add up") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  for (OpKind kind : {OpKind::kPositionEmbedding, OpKind::kResidualAdd, OpKind::kRope}) {
    for (Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
      if (VariedCases(kind, phase, tensor::DType::kF64).empty()) continue;
      OpMemory whole(RowCase(kind, phase, 0, kRows));
      const OpMemory before = whole;
      Run(registry, whole);
      std::vector<double> weight = before.Has(graph::kDW)   ? before.Get(graph::kDW)
                                   : before.Has(graph::kDB) ? before.Get(graph::kDB)
                                                            : std::vector<double>();
      const Operand gradient = before.Has(graph::kDW) ? graph::kDW : graph::kDB;
      const int64_t cuts[] = {0, 3, 3, 8, kRows};
      for (int index = 0; index < 4; ++index) {
        OpMemory part(RowCase(kind, phase, cuts[index], cuts[index + 1]));
        const auto for_rows = [&](auto use) {
          for (Operand operand : {graph::kX, graph::kY, graph::kResidual, graph::kDY, graph::kDX}) {
            if (!part.Has(operand)) continue;
            const int64_t cols = ShapeOf(part.op_case(), operand)->cols;
            const int64_t size = part.op_case().spec.rows * cols;
            for (int64_t i = 0; i < size; ++i) use(operand, i, cuts[index] * cols + i);
          }
        };
        for_rows([&](Operand operand, int64_t to, int64_t from) {
          part.SetAt(operand, to, before.At(operand, from));
        });
        if (!weight.empty()) part.Set(gradient, weight);
        Run(registry, part);
        INFO(Describe(part.op_case()));
        for_rows([&](Operand operand, int64_t to, int64_t from) {
          CHECK(part.At(operand, to) == whole.At(operand, from));
        });
        if (!weight.empty()) weight = part.Get(gradient);
      }
      // Ten terms below 1 / 0.6, rounded in another order.
      for (size_t i = 0; i < weight.size(); ++i) {
        CHECK(std::abs(weight[i] - whole.At(gradient, static_cast<int64_t>(i))) <= 200 * 0x1p-53);
      }
    }
  }
}

OpCase HeadCase(Phase phase, int64_t kv_begin, int64_t kv_end, int64_t kv_all) {
  OpCase op_case = DroppingCase(OpKind::kAttention, phase);
  OpSpec& spec = op_case.spec;
  spec.kv_heads = kv_end - kv_begin;
  spec.heads = kGroup * spec.kv_heads;
  spec.head_begin = kGroup * kv_begin;
  spec.global_heads = kGroup * kv_all;
  spec.head_dim = kHeadDim;
  spec.cols = spec.heads * kHeadDim;
  spec = WithLeadingDimensions(spec, kv_begin);
  return op_case;
}

// Column of the packed [q | k | v] row of the whole that is column `column` of a part's.
int64_t PackedColumn(const OpSpec& part, const OpSpec& whole, int64_t column) {
  const int64_t q = part.heads * kHeadDim;
  const int64_t k = part.kv_heads * kHeadDim;
  const int64_t first = part.head_begin * kHeadDim;
  if (column < q) return first + column;
  if (column < q + k) return whole.heads * kHeadDim + first / kGroup + column - q;
  return (whole.heads + whole.kv_heads) * kHeadDim + first / kGroup + column - q - k;
}

// use(operand, index in part, index in whole) for each element of a matrix cut by heads.
template <typename Use>
void ForHeads(const OpMemory& part, const OpMemory& whole, Use use) {
  const OpSpec& spec = part.op_case().spec;
  for (Operand operand : {graph::kX, graph::kY, graph::kStats, graph::kDY, graph::kDX}) {
    if (!part.Has(operand)) continue;
    const int64_t cols = ShapeOf(part.op_case(), operand)->cols;
    const int64_t all = ShapeOf(whole.op_case(), operand)->cols;
    for (int64_t index = 0; index < spec.rows * cols; ++index) {
      const int64_t column = index % cols;
      int64_t from = spec.head_begin * kHeadDim + column;
      if (operand == graph::kX || operand == graph::kDX) {
        from = PackedColumn(spec, whole.op_case().spec, column);
      } else if (operand == graph::kStats) {
        from = spec.head_begin + column;
      }
      use(operand, index, index / cols * all + from);
    }
  }
}

TEST_CASE("cut: attention over uneven parts of the heads is attention over all of them") {
  KernelRegistry registry;
  RegisterReferenceKernels(registry);
  constexpr int64_t kKv = 4;
  for (Phase phase : {Phase::kForward, Phase::kInputGrad}) {
    const OpMemory before = PrepareBackward(registry, HeadCase(phase, 0, kKv, kKv));
    OpMemory whole = before;
    Run(registry, whole);
    int64_t compared = 0;
    const int64_t cuts[] = {0, 1, 1, kKv};
    for (int index = 0; index < 3; ++index) {
      OpMemory part(HeadCase(phase, cuts[index], cuts[index + 1], kKv));
      ForHeads(part, whole, [&](Operand operand, int64_t to, int64_t from) {
        part.SetAt(operand, to, before.At(operand, from));
      });
      Run(registry, part);
      INFO(Describe(part.op_case()));
      ForHeads(part, whole, [&](Operand operand, int64_t to, int64_t from) {
        CHECK(part.At(operand, to) == whole.At(operand, from));
        ++compared;
      });
    }
    // All of x, y and the statistics, and in the backward of dx and dy.
    const int64_t packed = kRows * (kGroup + 2) * kKv * kHeadDim;
    const int64_t out = kRows * kGroup * kKv * kHeadDim;
    const int64_t passes = phase == Phase::kForward ? 1 : 2;
    CHECK(compared == passes * (packed + out) + kRows * kGroup * kKv);
  }
}

}  // namespace
}  // namespace trireme::kernels
