// Activations, attention and the loss far from where they bend: where exp and squares leave f32,
// against the formulas in long double, for the reference in f64 and f32 and for the cpu kernels on
// every instruction set this machine has.
#include <hwy/targets.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "runtime/tensor/bf16.h"
#include "tests/runtime/kernels/bounds.h"
#include "tests/runtime/kernels/op_case.h"

namespace trireme::kernels {
namespace {

using graph::Operand;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using Real = long double;

struct Backend {
  std::string name;
  const KernelRegistry& registry;
  tensor::DType dtype;
  bool reference;
  // Of the arithmetic, and of storing its result where that is narrower.
  double epsilon() const { return dtype == tensor::DType::kF64 ? 0x1p-53 : 0x1p-24; }
  double half_unit() const { return dtype == tensor::DType::kBf16 ? kHalfUnitOfBf16 : 0; }
};

void ForEachBackend(const std::vector<tensor::DType>& dtypes,
                    const std::function<void(const Backend&)>& body) {
  KernelRegistry reference, cpu;
  RegisterReferenceKernels(reference);
  RegisterCpuKernels(cpu);
  for (const tensor::DType dtype : dtypes) {
    const std::string name(tensor::NameOf(dtype));
    body({"reference " + name, reference, dtype, true});
    if (dtype == tensor::DType::kF64) continue;
    for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
      const int64_t target = rest & -rest;
      hwy::SetSupportedTargetsForTest(target);
      body({"cpu " + name + " " + hwy::TargetName(target), cpu, dtype, false});
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}
const std::vector<tensor::DType> kAllStorage = {tensor::DType::kF64, tensor::DType::kF32,
                                                tensor::DType::kBf16};
// For scores and logits that are not exact in bf16.
const std::vector<tensor::DType> kExactStorage = {tensor::DType::kF64, tensor::DType::kF32};

OpCase ExtremeCase(const Backend& backend, OpKind kind, Phase phase, int64_t rows, int64_t cols) {
  OpCase op_case;
  op_case.spec.kind = kind;
  op_case.spec.phase = phase;
  op_case.spec.dtype = backend.dtype;
  op_case.spec.rows = rows;
  op_case.spec.cols = cols;
  op_case.bias = false;
  return op_case;
}

void RunExtreme(const Backend& backend, OpMemory& memory) {
  REQUIRE(memory.Run(*PrepareKernel(backend.registry, memory.op_case().spec)) == "");
}

// Of what is stored in f32 or f64; of an activation, half a unit more.
void CheckNear(double actual, Real expected, Real bound) {
  const bool near = std::abs(actual - expected) <= bound;  // false for a NaN
  if (!near) UNSCOPED_INFO(static_cast<double>(expected) << " expected, bound " << bound);
  if (!near) CHECK(actual == static_cast<double>(expected));
}

void CheckStored(const Backend& backend, double actual, Real expected, Real bound) {
  // The greatest bf16 is 2^-8 below the greatest f32, from where on values become an infinity.
  const bool overflows = backend.half_unit() > 0 && std::abs(expected) >= 0x1.FFp127L;
  if (overflows && std::isinf(actual) && std::signbit(actual) == std::signbit(expected)) return;
  CheckNear(actual, expected, bound + backend.half_unit() * std::abs(expected));
}

// Of both signs: where tanh rounds to 1, where e^x and e^-x leave f32 (88, 104) and f64 (709, 745),
// where x^2 and x^3 leave f32.
std::vector<double> Inputs(const Backend& backend) {
  std::vector<double> inputs = {0};
  for (const float x : {1e-38F, 1e-30F, 1e-4F,  0.5F,   0.75F, 1.0F,  2.0F,  3.0F,  4.0F,
                        5.0F,   6.0F,   7.0F,   7.5F,   8.0F,  9.0F,  9.5F,  9.7F,  10.0F,
                        13.0F,  17.0F,  22.0F,  30.0F,  40.0F, 79.0F, 81.0F, 88.0F, 89.0F,
                        104.0F, 110.0F, 709.0F, 746.0F, 1e4F,  1e13F, 2e19F, 1e30F, 3.3e38F}) {
    const bool bf16 = backend.dtype == tensor::DType::kBf16;
    const double held = bf16 ? static_cast<float>(tensor::BFloat16(x)) : x;
    inputs.push_back(held);
    inputs.push_back(-held);
  }
  return inputs;
}

// Row r begins with input r, so that each meets every lane and the tail.
std::vector<double> Rotations(const std::vector<double>& inputs) {
  std::vector<double> values;
  for (size_t row = 0; row < inputs.size(); ++row) {
    for (size_t column = 0; column < inputs.size(); ++column) {
      values.push_back(inputs[(row + column) % inputs.size()]);
    }
  }
  return values;
}

Real SigmoidOf(Real x) { return 1 / (1 + std::exp(-x)); }

// gelu(x) = x sigmoid(v), v = 2 sqrt(2/pi) (x + 0.044715 x^3): no difference of equals anywhere.
struct GeluParts {
  explicit GeluParts(Real x) {
    const Real root = 2 * std::sqrt(2 / std::acos(Real{-1}));
    v = root * (x + Real{0.044715L} * x * x * x);
    s = SigmoidOf(v);
    bend = x * s * SigmoidOf(-v) * root * (1 + Real{0.134145L} * x * x);
  }
  Real v, s, bend;
};

// An f32 v errs by about 4 roundings of itself, so that e^-v does by 4 |v| of them; 8 of each, and
// 8 for what follows. Below: the cpu kernels stop at e^-78 = 1e-34; the reference takes 1 + tanh in
// f64, where values up to 20 are added to or taken from 1.
TEST_CASE("GELU has the right value and slope at any finite input") {
  ForEachBackend(kAllStorage, [&](const Backend& backend) {
    const std::vector<double> inputs = Inputs(backend);
    const auto n = static_cast<int64_t>(inputs.size());
    const std::vector<double> x = Rotations(inputs);
    INFO(backend.name);
    OpCase forward = ExtremeCase(backend, OpKind::kGelu, Phase::kForward, n, n);
    forward.spec = WithLeadingDimensions(forward.spec, 3);
    OpCase backward = forward;
    backward.spec.phase = Phase::kInputGrad;
    OpMemory values(forward), slopes(backward);
    values.Set(graph::kX, x);
    slopes.Set(graph::kX, x);
    RunExtreme(backend, values);
    RunExtreme(backend, slopes);
    for (int64_t i = 0; i < n * n; ++i) {
      const auto at = static_cast<size_t>(i);
      const GeluParts g(x[at]);
      const Real rounding = backend.epsilon() * (8 + 8 * std::abs(g.v) * SigmoidOf(-g.v));
      const Real reach = std::min(std::abs(Real{x[at]}), Real{20});
      const Real floor = backend.reference ? 0x1p-50L * reach + 1e-37L : 1e-30L;
      INFO("x " << x[at]);
      CheckStored(backend, values.At(graph::kY, i), x[at] * g.s,
                  rounding * std::abs(x[at] * g.s) + floor);
      const double dy = slopes.At(graph::kDY, i);
      const Real slope_rounding = backend.epsilon() * (8 + 8 * std::min(std::abs(g.v), Real{200}));
      const Real slope_floor =
          backend.reference ? 0x1p-50L * (1 + reach * (1 + reach * reach)) : 1e-30L;
      CheckStored(backend, slopes.At(graph::kDX, i), dy * (g.s + g.bend),
                  std::abs(dy) * slope_rounding * (g.s + std::abs(g.bend)) + slope_floor);
    }
  });
}

// -g is exact, so e^-g errs by 2 roundings; a dozen follow. The cpu kernels stop at e^-80 = 2e-35;
// the reference takes 1 - s in f64, of which a rounding meets g up to 40.
TEST_CASE("SwiGLU has the right values and slopes at any finite gate") {
  ForEachBackend(kAllStorage, [&](const Backend& backend) {
    const std::vector<double> inputs = Inputs(backend);
    const auto n = static_cast<int64_t>(inputs.size());
    const std::vector<double> gate = Rotations(inputs);
    INFO(backend.name);
    OpCase forward = ExtremeCase(backend, OpKind::kSwiGlu, Phase::kForward, n, n);
    forward.spec = WithLeadingDimensions(forward.spec, 3);
    OpCase backward = forward;
    backward.spec.phase = Phase::kInputGrad;
    OpMemory values(forward), slopes(backward);
    for (int64_t i = 0; i < n * n; ++i) {
      const int64_t at = i / n * 2 * n + i % n;
      values.SetAt(graph::kX, at, gate[static_cast<size_t>(i)]);
      slopes.SetAt(graph::kX, at, gate[static_cast<size_t>(i)]);
    }
    RunExtreme(backend, values);
    RunExtreme(backend, slopes);
    for (int64_t i = 0; i < n * n; ++i) {
      const int64_t at = i / n * 2 * n + i % n;
      const Real g = gate[static_cast<size_t>(i)], up = values.At(graph::kX, at + n);
      const Real s = SigmoidOf(g), silu = g * s, bend = silu * SigmoidOf(-g);
      const Real dy = slopes.At(graph::kDY, i), rounding = 16 * backend.epsilon();
      const Real floor = backend.reference ? 0x1p-50L * std::min(std::abs(g), Real{40}) : 1e-30L;
      INFO("gate " << gate[static_cast<size_t>(i)]);
      CheckStored(backend, values.At(graph::kY, i), silu * up,
                  rounding * std::abs(silu * up) + std::min(floor, Real{1e-30L}) + 1e-37L);
      CheckStored(backend, slopes.At(graph::kDX, at), dy * up * (s + bend),
                  rounding * std::abs(dy * up) * (s + std::abs(bend)) + floor + 1e-37L);
      CheckStored(backend, slopes.At(graph::kDX, at + n), dy * silu,
                  rounding * std::abs(dy * silu) + 1e-30L);
    }
  });
}

TEST_CASE("what is not finite before an activation is not finite after it") {
  const Real infinity = INFINITY;
  ForEachBackend(kAllStorage, [&](const Backend& backend) {
    INFO(backend.name);
    for (const OpKind kind : {OpKind::kGelu, OpKind::kSwiGlu}) {
      for (const Real x : {-infinity, infinity, std::nan("") + Real{0}}) {
        // Whole vectors of it, and a tail.
        OpCase op_case = ExtremeCase(backend, kind, Phase::kForward, 1, 37);
        op_case.spec = WithLeadingDimensions(op_case.spec, 0);
        OpMemory values(op_case);
        op_case.spec.phase = Phase::kInputGrad;
        OpMemory slopes(op_case);
        for (int64_t i = 0; i < 37; ++i) {
          values.SetAt(graph::kX, i, static_cast<double>(x));
          slopes.SetAt(graph::kX, i, static_cast<double>(x));
        }
        RunExtreme(backend, values);
        RunExtreme(backend, slopes);
        INFO("kind " << static_cast<int>(kind) << ", x " << static_cast<double>(x));
        for (int64_t i = 0; i < 37; ++i) {
          CHECK(!std::isfinite(values.At(graph::kY, i)));
          CHECK(!std::isfinite(slopes.At(graph::kDX, i)));
        }
      }
    }
  });
}

// Of one of a few: some pairs are equal or near, most are 1e4 and more apart; all exact in f32.
double ScoreAt(int64_t index) {
  constexpr double kScores[] = {-1e4, 1e4, 0, 9999.5, -9999, 5000, 9998, 1e4, -1e4, 30, -30};
  // The greatest come late: a running maximum must take back what it has added up.
  const bool late = index % 150 >= 128;
  return late ? kScores[index % 11] : std::min(kScores[index * 7 % 11], 5000.0);
}

// A log-sum-exp of about 1e4 is stored to half an ulp, which is 2^-11 in f32 and 2^-40 in f64; an
// ulp covers what rounds before. The backward's probabilities err by so much of themselves.
double StoredError(const Backend& backend) {
  return backend.dtype == tensor::DType::kF64 ? 0x1p-38 : 0x1p-10;
}

constexpr int64_t kScoreTokens = 150, kScoreWidth = 4, kScoreHeads = 2;

OpSpec ScoreSpec(const Backend& backend, Phase phase) {
  OpSpec spec =
      ExtremeCase(backend, OpKind::kAttention, phase, kScoreTokens, kScoreHeads * kScoreWidth).spec;
  spec.tokens = kScoreTokens;
  spec.heads = spec.global_heads = kScoreHeads;
  spec.kv_heads = 1;
  spec.head_dim = kScoreWidth;  // scale 1/2
  spec.inner = (kScoreHeads + 2) * kScoreWidth;
  return WithLeadingDimensions(spec, 3);
}

// Packed x: queries +-2 and keys s_j along the first axis, so that a score is +-s_j, exactly.
void SetScores(OpMemory& memory) {
  for (int64_t t = 0; t < kScoreTokens; ++t) {
    const int64_t row = t * (kScoreHeads + 2) * kScoreWidth;
    for (int64_t d = 0; d < (kScoreHeads + 1) * kScoreWidth; ++d) {
      memory.SetAt(graph::kX, row + d, 0);
    }
    for (int64_t h = 0; h < kScoreHeads; ++h) {
      memory.SetAt(graph::kX, row + h * kScoreWidth, (t + h) % 2 == 0 ? 2 : -2);
    }
    memory.SetAt(graph::kX, row + kScoreHeads * kScoreWidth, ScoreAt(t));
  }
}

// Attention and its gradient by the formula, and per element the sum of the absolute values of all
// terms, of which roundings are shares.
struct PlainScores {
  std::vector<Real> y, lse, dx, dx_terms;
};

PlainScores AttentionOf(const OpMemory& x, const OpMemory& dy) {
  constexpr int64_t kRow = (kScoreHeads + 2) * kScoreWidth, kOut = kScoreHeads * kScoreWidth;
  PlainScores a;
  a.y.resize(kScoreTokens * kOut);
  a.lse.resize(kScoreTokens * kScoreHeads);
  a.dx.resize(kScoreTokens * kRow);
  a.dx_terms.resize(kScoreTokens * kRow);
  const auto add = [&](int64_t index, Real term, Real terms) {
    a.dx[static_cast<size_t>(index)] += term;
    a.dx_terms[static_cast<size_t>(index)] += std::abs(terms);
  };
  for (int64_t t = 0; t < kScoreTokens; ++t) {
    for (int64_t h = 0; h < kScoreHeads; ++h) {
      const Real q = x.At(graph::kX, t * kRow + h * kScoreWidth);
      const auto score = [&](int64_t j) { return q / 2 * ScoreAt(j); };
      const auto value = [&](int64_t j, int64_t d) {
        return Real{x.At(graph::kX, j * kRow + (kScoreHeads + 1) * kScoreWidth + d)};
      };
      Real top = score(0), sum = 0;
      for (int64_t j = 0; j <= t; ++j) top = std::max(top, score(j));
      for (int64_t j = 0; j <= t; ++j) sum += std::exp(score(j) - top);
      a.lse[static_cast<size_t>(t * kScoreHeads + h)] = top + std::log(sum);
      std::vector<Real> p, dp;
      Real delta = 0, delta_terms = 0;
      for (int64_t j = 0; j <= t; ++j) {
        p.push_back(std::exp(score(j) - top) / sum);
        dp.push_back(0);
        for (int64_t d = 0; d < kScoreWidth; ++d) {
          const Real g = dy.At(graph::kDY, t * kOut + h * kScoreWidth + d);
          a.y[static_cast<size_t>(t * kOut + h * kScoreWidth + d)] += p.back() * value(j, d);
          dp.back() += g * value(j, d);
          const int64_t to = j * kRow + (kScoreHeads + 1) * kScoreWidth + d;
          add(to, p.back() * g, p.back() * g);
        }
        delta += p.back() * dp.back();
        delta_terms += p.back() * kScoreWidth;  // |v| and |dy| are below 1
      }
      for (int64_t j = 0; j <= t; ++j) {
        const auto at = static_cast<size_t>(j);
        const Real ds = p[at] * (dp[at] - delta) / 2, terms = p[at] * (kScoreWidth + delta_terms);
        add(t * kRow + h * kScoreWidth, ds * ScoreAt(j), terms * ScoreAt(j));
        add(j * kRow + kScoreHeads * kScoreWidth, ds * q, terms * q);
      }
    }
  }
  return a;
}

TEST_CASE("attention is right for scores of 1e4 of both signs") {
  ForEachBackend(kExactStorage, [&](const Backend& backend) {
    INFO(backend.name);
    OpCase op_case;
    op_case.spec = ScoreSpec(backend, Phase::kForward);
    OpMemory values(op_case);
    SetScores(values);
    RunExtreme(backend, values);
    op_case.spec = ScoreSpec(backend, Phase::kInputGrad);
    OpMemory slopes(op_case);
    slopes.Set(graph::kX, values.Get(graph::kX));
    slopes.Set(graph::kY, values.Get(graph::kY));
    slopes.Set(graph::kStats, values.Get(graph::kStats));
    RunExtreme(backend, slopes);
    const PlainScores expected = AttentionOf(values, slopes);
    // cpu_operators_test.cc: a sum of so many terms.
    const double rounding = backend.epsilon() * (24 + 4 * std::sqrt(kScoreTokens + 0.0));
    for (size_t i = 0; i < expected.y.size(); ++i) {
      INFO("y " << i);
      CheckNear(values.At(graph::kY, static_cast<int64_t>(i)), expected.y[i], rounding);
    }
    for (size_t i = 0; i < expected.lse.size(); ++i) {
      INFO("lse " << i);
      CheckNear(values.At(graph::kStats, static_cast<int64_t>(i)), expected.lse[i],
                StoredError(backend));
    }
    for (size_t i = 0; i < expected.dx.size(); ++i) {
      INFO("dx " << i);
      CheckNear(slopes.At(graph::kDX, static_cast<int64_t>(i)), expected.dx[i],
                (StoredError(backend) + rounding) * expected.dx_terms[i] + 1e-37L);
    }
  });
}

constexpr int64_t kLossRows = 5;
// A target at the greatest logit, at the least (a loss of 2e4), near it, and one not counted.
constexpr int32_t kLossTargets[kLossRows] = {1, 0, 3, -1, 8};

double LogitAt(int64_t row, int64_t column) { return (row % 2 == 0 ? 1 : -1) * ScoreAt(column); }

void CheckLogits(const Backend& backend, int64_t cols) {
  INFO(backend.name << ", " << cols << " logits");
  OpCase op_case = ExtremeCase(backend, OpKind::kLmHeadLoss, Phase::kForward, kLossRows, cols);
  op_case.spec.inner = 1;
  op_case.spec.vocab_rows = cols;
  op_case.spec = WithLeadingDimensions(op_case.spec, 3);
  OpMemory head(op_case);
  op_case.spec.phase = Phase::kInputGrad;
  OpMemory slopes(op_case);
  OpCase combine = ExtremeCase(backend, OpKind::kLossCombine, Phase::kForward, kLossRows, 0);
  combine.spec.tensor_ranks = 1;
  OpMemory loss(combine);
  for (OpMemory* memory : {&head, &slopes, &loss}) {
    memory->tokens().assign(kLossTargets, kLossTargets + kLossRows);
  }
  for (int64_t r = 0; r < kLossRows; ++r) head.SetAt(graph::kX, r, r % 2 == 0 ? 1 : -1);
  for (int64_t c = 0; c < cols; ++c) {
    head.SetAt(graph::kW, c, ScoreAt(c));
    slopes.SetAt(graph::kW, c, ScoreAt(c));
  }
  RunExtreme(backend, head);
  loss.Set(graph::kX, head.Get(graph::kStats));
  loss.SetAt(graph::kDB, 0, 0);
  RunExtreme(backend, loss);
  slopes.Set(graph::kY, head.Get(graph::kY));
  slopes.Set(graph::kBase, loss.Get(graph::kY));
  RunExtreme(backend, slopes);
  const Real rounding = backend.epsilon() * (24 + 4 * std::sqrt(static_cast<Real>(cols)));
  const Real scale = op_case.loss_scale;
  Real expected_loss = 0;
  for (int64_t r = 0; r < kLossRows; ++r) {
    INFO("row " << r);
    const bool counted = kLossTargets[r] >= 0;
    Real top = LogitAt(r, 0), sum = 0, dx = 0, dx_terms = 0;
    for (int64_t c = 0; c < cols; ++c) top = std::max(top, Real{LogitAt(r, c)});
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(LogitAt(r, c) - top);
    CheckNear(loss.At(graph::kY, r), top + std::log(sum), StoredError(backend));
    if (counted) expected_loss += top + std::log(sum) - LogitAt(r, kLossTargets[r]);
    for (int64_t c = 0; c < cols; ++c) {
      INFO("logit " << c);
      const Real p = std::exp(LogitAt(r, c) - top) / sum;
      const Real slope = counted ? (p - (c == kLossTargets[r] ? 1 : 0)) * scale : 0;
      const Real terms = counted ? (p + (c == kLossTargets[r] ? 1 : 0)) * scale : 0;
      CheckNear(slopes.At(graph::kY, r * cols + c), slope, StoredError(backend) * terms + 1e-37L);
      dx += slope * ScoreAt(c);
      dx_terms += terms * std::abs(ScoreAt(c));
    }
    CheckNear(slopes.At(graph::kDX, r), dx, (StoredError(backend) + rounding) * dx_terms + 1e-37L);
  }
  // The sum over the logits is stored, so the loss errs by its rounding in each row; the rest is
  // f64 of some 1e4.
  CheckNear(loss.At(graph::kDB, 0), expected_loss, kLossRows * (rounding + 0x1p-38L));
}

TEST_CASE("cross-entropy is right for logits of 1e4 of both signs") {
  ForEachBackend(kExactStorage, [&](const Backend& backend) {
    for (const int64_t cols : {133, 4101}) CheckLogits(backend, cols);
  });
}

}  // namespace
}  // namespace trireme::kernels
