// Every kernel of runtime/kernels/cpu, in f32 and bf16, against the f64 reference on the same
// values, over odd, empty, strided and threaded shapes. Bound: an f32 sum of k terms in any order
// errs by about eps * sqrt(k) of its largest partial sum, and every element goes through at most a
// dozen other roundings: eps * (24 + 4 sqrt(k)), relative to the greatest element; and what
// bounds.h adds for what is stored in bf16.
#include <hwy/targets.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/runtime/kernels/bounds.h"
#include "tests/sanitizer.h"

namespace trireme::kernels {
namespace {

using graph::Operand;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using graph::WeightLayout;

constexpr double kEpsilon = 0x1p-24;

const KernelRegistry& Reference() {
  static const KernelRegistry registry = [] {
    KernelRegistry made;
    RegisterReferenceKernels(made);
    return made;
  }();
  return registry;
}

std::unique_ptr<Kernel> PrepareCpu(const OpSpec& spec, int threads) {
  static const KernelRegistry registry = [] {
    KernelRegistry made;
    RegisterCpuKernels(made);
    return made;
  }();
  auto kernel =
      registry.Prepare(spec, {.scratch_limit_bytes = size_t{1} << 30, .threads = threads});
  INFO((kernel.ok() ? std::string() : std::string(kernel.status().message())));
  REQUIRE(kernel.ok());
  return std::move(*kernel);
}

bool IsProduct(OpKind kind) { return kind == OpKind::kLinear || kind == OpKind::kLmHeadLoss; }

void CheckDType(const OpCase& op_case, double terms) {
  INFO(Describe(op_case));
  OpMemory exact = ExactOperands(Reference(), op_case);
  const OpMemory start = Converted(exact, op_case.spec.dtype);
  REQUIRE(exact.Run(*PrepareKernel(Reference(), exact.op_case().spec)) == "");
  std::optional<OpMemory> alone;
  // Three threads cut the long attentions' tasks unevenly.
  const int most = op_case.spec.kind == OpKind::kAttention && op_case.spec.tokens > 256 ? 3 : 2;
  for (int threads = 1; threads <= most; ++threads) {
    INFO("threads " << threads);
    auto kernel = PrepareCpu(op_case.spec, threads);
    OpMemory actual = start;
    REQUIRE(actual.Run(*kernel) == "");
    CHECK(Beyond(exact, actual, kEpsilon * (24 + 4 * std::sqrt(terms))) == "");
    OpMemory again = start;
    REQUIRE(again.Run(*kernel) == "");
    const Difference repeated = Compare(actual, again);
    INFO("repeated: " << repeated.where);
    CHECK(repeated.worst == 0);
    // oneDNN cuts products by threads; nothing else depends on their number.
    if (IsProduct(op_case.spec.kind)) continue;
    if (!alone) alone = actual;
    const Difference threaded = Compare(*alone, actual);
    INFO("threaded: " << threaded.where);
    CHECK(threaded.worst == 0);
  }
}

// Runs the cpu kernel with one and with two threads, each twice, against the f64 reference; `terms`
// is the length of the longest sum.
void Check(OpCase op_case, double terms) {
  for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBf16}) {
    op_case.spec.dtype = dtype;
    CheckDType(op_case, terms);
  }
}

OpSpec Spec(OpKind kind, Phase phase, int64_t rows, int64_t cols) {
  OpSpec spec;
  spec.kind = kind;
  spec.phase = phase;
  spec.rows = rows;
  spec.cols = cols;
  spec.epsilon = 1e-5;
  spec.site = 77;
  return spec;
}

OpCase CaseOf(const OpSpec& spec, int64_t padding) {
  OpCase op_case;
  op_case.spec = WithLeadingDimensions(spec, padding);
  return op_case;
}

constexpr Phase kPhases[] = {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad};
constexpr BaseMemory kBases[] = {BaseMemory::kAbsent, BaseMemory::kSeparate, BaseMemory::kSameAsDx};

struct Size {
  int64_t rows, cols;
};
constexpr int64_t kTall = tests::kSanitizer ? 9 : 70;
constexpr Size kWide = {tests::kSanitizer ? 19 : 131, 768};

TEST_CASE("cpu norms agree with the reference") {
  for (OpKind kind : {OpKind::kLayerNorm, OpKind::kRmsNorm}) {
    for (Phase phase : kPhases) {
      for (Size size : {Size{0, 8}, {1, 1}, {3, 7}, {5, 16}, {70, 33}, kWide}) {
        for (BaseMemory base : kBases) {
          if (phase != Phase::kInputGrad && base != BaseMemory::kAbsent) continue;
          for (bool flag : {false, true}) {
            OpCase c = CaseOf(Spec(kind, phase, size.rows, size.cols), flag ? 3 : 0);
            c.base = base;
            c.bias = flag;
            c.restored = phase == Phase::kInputGrad && flag;
            c.accumulate = flag;
            // The gradients of a row of one element cancel to 0: nothing to be relative to.
            if (size.cols == 1 && phase != Phase::kForward) continue;
            Check(c, static_cast<double>(phase == Phase::kWeightGrad ? size.rows : size.cols));
          }
        }
      }
    }
  }
}

TEST_CASE("cpu activations agree with the reference") {
  for (OpKind kind : {OpKind::kGelu, OpKind::kSwiGlu}) {
    for (Phase phase : {Phase::kForward, Phase::kInputGrad}) {
      for (Size size : {Size{0, 8}, {1, 1}, {3, 7}, {70, 33}, {64, 512}}) {
        for (BaseMemory base : kBases) {
          if (base != BaseMemory::kAbsent &&
              (phase == Phase::kForward || kind == OpKind::kSwiGlu)) {
            continue;
          }
          OpCase c = CaseOf(Spec(kind, phase, size.rows, size.cols), 5);
          c.base = base;
          Check(c, 1);
          c.restored = phase == Phase::kInputGrad;
          if (c.restored) Check(c, 1);
        }
      }
    }
  }
}

TEST_CASE("cpu input-grads restore the forward's output to the bit") {
  for (const OpKind kind : {OpKind::kLayerNorm, OpKind::kRmsNorm, OpKind::kGelu, OpKind::kSwiGlu}) {
    for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBf16}) {
      OpCase forward = CaseOf(Spec(kind, Phase::kForward, 70, 133), 5);
      forward.spec.dtype = dtype;
      OpMemory first(forward);
      // Far beyond both ends of what an activation rounds to 0 or to its argument.
      const auto last = static_cast<int64_t>(first.Get(graph::kX).size()) - 1;
      for (const double value : {-1e4, -9.7, 15.9, 16.1, 30.0, 1e4}) {
        first.SetAt(graph::kX, static_cast<int64_t>(std::abs(value)) % last, value);
      }
      REQUIRE(first.Run(*PrepareCpu(forward.spec, 1)) == "");
      OpCase backward = forward;
      backward.spec.phase = Phase::kInputGrad;
      backward.restored = true;
      OpMemory second(backward);
      for (const Operand operand : {graph::kX, graph::kW, graph::kB, graph::kStats}) {
        if (second.Has(operand)) second.Set(operand, first.Get(operand));
      }
      REQUIRE(second.Run(*PrepareCpu(backward.spec, 1)) == "");
      INFO(Describe(backward));
      CHECK(second.Get(graph::kY) == first.Get(graph::kY));
    }
  }
}

TEST_CASE("cpu residual adds draw the reference's dropout masks") {
  for (Phase phase : kPhases) {
    for (Size size : {Size{0, 8}, {1, 1}, {6, 7}, {60, 33}, {66, 768}}) {
      for (double p : {0.0, 0.3}) {
        if (p == 0 && phase == Phase::kInputGrad) continue;
        for (bool flag : {false, true}) {
          OpSpec spec = Spec(OpKind::kResidualAdd, phase, size.rows, size.cols);
          spec.tokens = 6;
          spec.row_begin = 3;
          spec.dropout_p = p;
          OpCase c = CaseOf(spec, flag ? 3 : 0);
          c.bias = flag || phase == Phase::kWeightGrad;
          c.residual = !flag;
          c.accumulate = flag;
          c.first_sample = 0x400000000 / 6 / size.cols - 2;  // the block of four crosses 32 bits
          c.seed = 0x123456789abcull;
          c.step = 0x200000003ull;
          Check(c, static_cast<double>(size.rows));
          c.training = false;
          if (phase == Phase::kForward) Check(c, 1);
        }
      }
    }
  }
}

TEST_CASE("cpu embeddings agree with the reference") {
  for (OpKind kind : {OpKind::kEmbedding, OpKind::kPositionEmbedding}) {
    for (Phase phase : {Phase::kForward, Phase::kWeightGrad}) {
      for (Size size : {Size{0, 8}, {1, 1}, {14, 7}, {700, 48}}) {
        for (bool flag : {false, true}) {
          OpSpec spec = Spec(kind, phase, size.rows, size.cols);
          spec.vocab_begin = 5;
          spec.vocab_rows = 11;
          spec.tokens = 7;
          spec.weight_rows = 9;
          spec.row_begin = 2;
          OpCase c = CaseOf(spec, flag ? 3 : 0);
          c.accumulate = flag;
          Check(c, static_cast<double>(size.rows));
        }
      }
    }
  }
}

TEST_CASE("cpu rotations agree with the reference") {
  for (Phase phase : {Phase::kForward, Phase::kInputGrad}) {
    for (int64_t head_dim : {2, 6, 64}) {
      for (int64_t kv_heads : {1, 4}) {
        OpSpec spec = Spec(OpKind::kRope, phase, 60, 0);
        spec.tokens = 15;
        spec.row_begin = 4;
        spec.heads = 4;
        spec.kv_heads = kv_heads;
        spec.head_dim = head_dim;
        spec.cols = (4 + 2 * kv_heads) * head_dim;
        spec.rope_theta = 10000;
        Check(CaseOf(spec, 3), 1);
      }
    }
  }
}

TEST_CASE("cpu linear products agree with the reference") {
  struct Shape {
    int64_t rows, inner, cols;
  };
  for (Phase phase : kPhases) {
    for (Shape size : {Shape{0, 4, 5},
                       {5, 4, 0},
                       {5, 0, 4},
                       {1, 1, 1},
                       {3, 7, 5},
                       {65, 33, 47},
                       {96, 128, 192}}) {
      for (WeightLayout layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
        for (BaseMemory base : kBases) {
          if (phase != Phase::kInputGrad && base != BaseMemory::kAbsent) continue;
          for (bool flag : {false, true}) {
            OpSpec spec = Spec(OpKind::kLinear, phase, size.rows, size.cols);
            spec.inner = size.inner;
            spec.weight_layout = layout;
            for (bool residual : {false, true}) {
              if (residual && phase != Phase::kForward) continue;
              spec.fused_residual = residual;
              OpCase c = CaseOf(spec, flag ? 3 : 0);
              c.bias = flag;
              c.base = base;
              c.accumulate = flag && phase == Phase::kWeightGrad;
              Check(c, static_cast<double>(std::max({size.rows, size.inner, size.cols})));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("cpu attention agrees with the reference") {
  struct Shape {
    int64_t samples, tokens, heads, kv_heads, head_dim;
  };
  for (Phase phase : {Phase::kForward, Phase::kInputGrad}) {
    for (Shape size : {Shape{1, 1, 1, 1, 1},
                       {2, 5, 2, 1, 3},
                       {2, 17, 3, 3, 8},
                       {1, 64, 2, 2, 64},
                       {1, 129, 4, 2, 20},
                       {2, 200, 2, 2, 64},
                       {1, 300, 2, 1, 33},
                       {1, 700, 2, 1, 16},  // of few groups the keys are cut too
                       {1, 1024, 1, 1, 8}}) {
      if (tests::kSanitizer && (size.tokens == 700 || size.tokens == 200)) continue;
      for (double p : {0.0, 0.25}) {
        OpSpec spec = Spec(OpKind::kAttention, phase, size.samples * size.tokens, 0);
        spec.tokens = size.tokens;
        spec.heads = size.heads;
        spec.kv_heads = size.kv_heads;
        spec.head_dim = size.head_dim;
        spec.head_begin = 3;
        spec.global_heads = 11;
        spec.cols = size.heads * size.head_dim;
        spec.inner = (size.heads + 2 * size.kv_heads) * size.head_dim;
        spec.dropout_p = p;
        OpCase c = CaseOf(spec, 3);
        c.first_sample = 6;
        Check(c, static_cast<double>(size.tokens + size.head_dim));
      }
    }
  }
}

TEST_CASE("the cpu head and its loss agree with the reference") {
  struct Shape {
    int64_t rows, inner, cols;
  };
  for (Phase phase : kPhases) {
    // The last two are tiles of columns by tiles of the processor, the last of them narrower.
    for (Shape size : {Shape{0, 4, 5},
                       {1, 1, 1},
                       {9, 7, 33},
                       {70, 24, 300},
                       {5, 3, 8200},
                       {kTall, 40, 2300},
                       {kTall, 40, 2080}}) {
      for (WeightLayout layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
        for (bool flag : {false, true}) {
          if (tests::kSanitizer && flag == (layout == WeightLayout::kInOut)) continue;
          OpSpec spec = Spec(OpKind::kLmHeadLoss, phase, size.rows, size.cols);
          spec.inner = size.inner;
          spec.weight_layout = layout;
          spec.vocab_begin = flag ? 10 : 0;
          spec.vocab_rows = size.cols;
          OpCase c = CaseOf(spec, flag ? 3 : 0);
          c.accumulate = flag && phase == Phase::kWeightGrad;
          Check(c, static_cast<double>(std::max({size.rows, size.inner, size.cols})));
        }
      }
    }
  }
}

TEST_CASE("the cpu loss of several tensor ranks agrees with the reference") {
  for (int64_t ranks : {1, 3}) {
    for (int64_t rows : {0, 1, 40}) {
      OpSpec spec = Spec(OpKind::kLossCombine, Phase::kForward, rows, 0);
      spec.tensor_ranks = ranks;
      Check(CaseOf(spec, 0), static_cast<double>(rows));
    }
  }
}

// Fewer threads, or the other way to multiply, before the plain loops.
TEST_CASE("little scratch makes cpu kernels ask for less, not give up") {
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  const auto prepare = [&](const OpSpec& spec, size_t limit, int threads) {
    auto kernel = registry.Prepare(spec, {.scratch_limit_bytes = limit, .threads = threads});
    INFO(kernel.status().ToString());
    REQUIRE(kernel.ok());
    CHECK((*kernel)->ScratchBytes() <= limit);
    return (*kernel)->ScratchBytes();
  };
  constexpr size_t kPlanned = size_t{64} << 20;
  for (Phase phase : {Phase::kForward, Phase::kInputGrad}) {
    for (const auto& [samples, tokens, threads] :
         {std::tuple(1, 8192, 8), std::tuple(8, 1024, 48)}) {
      OpSpec spec = Spec(OpKind::kAttention, phase, samples * tokens, 12 * 64);
      spec.tokens = tokens;
      spec.heads = spec.kv_heads = spec.global_heads = 12;
      spec.head_dim = 64;
      const size_t one = prepare(spec, kPlanned, 1);
      const size_t all = prepare(spec, size_t{1} << 30, threads);
      const size_t some = prepare(spec, kPlanned, threads);
      CHECK(some > one);
      if (all > kPlanned) CHECK(some + one > kPlanned);  // one more thread would not fit
      prepare(spec, one, threads);
    }
  }
  for (const OpKind kind : {OpKind::kLinear, OpKind::kLmHeadLoss}) {
    for (Phase phase : kPhases) {
      for (WeightLayout layout : {WeightLayout::kInOut, WeightLayout::kOutIn}) {
        OpSpec spec = Spec(kind, phase, 256, 3072);
        spec.inner = 768;
        spec.weight_layout = layout;
        spec.vocab_rows = spec.cols;
        CHECK(prepare(spec, 0, 2) == 0);
      }
    }
  }
}

// The loops are compiled for several instruction sets; other machines run the others.
TEST_CASE("cpu loops agree with the reference on every instruction set this machine has") {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t rest = all; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    INFO(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    for (Phase phase : kPhases) {
      OpSpec spec = Spec(OpKind::kResidualAdd, phase, 40, 37);
      spec.tokens = 8;
      spec.dropout_p = 0.3;
      OpCase residual = CaseOf(spec, 3);
      residual.first_sample = 0x400000000 / 8 / 37 - 2;
      Check(residual, 40);
      Check(CaseOf(Spec(OpKind::kLayerNorm, phase, 9, 37), 3), 37);
      if (phase == Phase::kWeightGrad) continue;
      Check(CaseOf(Spec(OpKind::kGelu, phase, 9, 37), 3), 1);
      Check(CaseOf(Spec(OpKind::kSwiGlu, phase, 9, 37), 3), 1);
      OpSpec attention = Spec(OpKind::kAttention, phase, 2 * 150, 2 * 20);
      attention.tokens = 150;
      attention.heads = attention.global_heads = 2;
      attention.kv_heads = 1;
      attention.head_dim = 20;
      attention.inner = 4 * 20;
      attention.dropout_p = 0.25;
      Check(CaseOf(attention, 3), 170);
      OpSpec head = Spec(OpKind::kLmHeadLoss, phase, 9, 133);
      head.inner = 7;
      head.vocab_rows = 133;
      Check(CaseOf(head, 3), 133);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Of one width, whatever the operator counts in it.
std::vector<OpSpec> SpecsOfWidth(Phase phase, int64_t rows, int64_t width) {
  std::vector<OpSpec> specs;
  for (const OpKind kind : {OpKind::kLayerNorm, OpKind::kRmsNorm, OpKind::kGelu, OpKind::kSwiGlu,
                            OpKind::kResidualAdd, OpKind::kEmbedding, OpKind::kPositionEmbedding,
                            OpKind::kRope, OpKind::kAttention, OpKind::kLmHeadLoss}) {
    const bool has_weights = kind != OpKind::kGelu && kind != OpKind::kSwiGlu &&
                             kind != OpKind::kRope && kind != OpKind::kAttention;
    const bool passes_gradients = kind != OpKind::kEmbedding && kind != OpKind::kPositionEmbedding;
    if (phase == Phase::kWeightGrad && !has_weights) continue;
    if (phase == Phase::kInputGrad && !passes_gradients) continue;
    // The gradient of so narrow a norm cancels: there is only rounding to compare.
    const bool norm = kind == OpKind::kLayerNorm || kind == OpKind::kRmsNorm;
    if (norm && phase == Phase::kInputGrad && width < 3) continue;
    OpSpec spec = Spec(kind, phase, rows, width);
    spec.tokens = spec.weight_rows = rows;
    spec.vocab_rows = kind == OpKind::kLmHeadLoss ? width : 5;
    spec.inner = 3;
    spec.rope_theta = 10000;
    spec.heads = spec.global_heads = 2;
    spec.kv_heads = 1;
    spec.head_dim = kind == OpKind::kRope ? 2 * width : width;
    if (kind == OpKind::kRope) spec.cols = 4 * spec.head_dim;
    if (kind == OpKind::kAttention) {
      spec.cols = 2 * width;
      spec.inner = 4 * width;
    }
    if (kind == OpKind::kResidualAdd) spec.dropout_p = 0.3;
    specs.push_back(spec);
  }
  return specs;
}

// Under a sanitizer every third width, which has every tail, too.
constexpr int64_t kWidthStep = tests::kSanitizer ? 3 : 1;

// A row of 67 has every number of whole vectors and every tail of 4, 8 and 16 lanes, and of four
// vectors at a time for the narrower ones.
TEST_CASE("cpu loops agree with the reference at every width up to four vectors") {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t rest = all; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    INFO(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    // Four vectors of f32 and three elements: every tail of an unrolled loop.
    const int64_t widest = target <= HWY_AVX3 ? 67 : target <= HWY_AVX2 ? 35 : 19;
    for (const Phase phase : kPhases) {
      for (int64_t width = 1; width <= widest; width += kWidthStep) {
        for (const OpSpec& spec : SpecsOfWidth(phase, width % 2 == 0 ? 1 : 3, width)) {
          Check(CaseOf(spec, 3), static_cast<double>(width));
        }
      }
    }
    for (const Phase phase : {Phase::kForward, Phase::kInputGrad}) {
      for (int64_t tokens = 1; tokens <= widest; tokens += kWidthStep) {  // keys of the last query
        OpSpec spec = Spec(OpKind::kAttention, phase, tokens, 2 * 5);
        spec.tokens = tokens;
        spec.heads = spec.kv_heads = spec.global_heads = 2;
        spec.head_dim = 5;
        spec.inner = 6 * 5;
        Check(CaseOf(spec, 3), static_cast<double>(tokens));
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace trireme::kernels
