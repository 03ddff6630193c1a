// One member function per operator; slow and plain on purpose.
#include "tests/runtime/kernels/reference_oracle.h"

#include <cmath>
#include <limits>

#include "runtime/base/philox.h"

namespace trireme::kernels {
namespace {

using graph::OpKind;
using graph::OpSpec;
using Real = long double;
using Values = std::vector<Real>;

// A dense operand as long double; empty if absent.
Values Load(const OpMemory& memory, graph::Operand operand) {
  if (!memory.Has(operand)) return {};
  const std::vector<double> values = memory.Get(operand);
  return Values(values.begin(), values.end());
}

Real MaskFactor(const OpCase& op_case, int64_t index) {
  const double p = op_case.spec.dropout_p;
  if (!op_case.training || p == 0) return 1;
  const base::RandomSite site{op_case.seed, op_case.spec.site, op_case.step};
  const bool dropped =
      site.Uniform32(static_cast<uint64_t>(index)) < static_cast<uint32_t>(p * 4294967296.0);
  return dropped ? Real{0} : Real{1} / (Real{1} - Real{p});
}

struct Oracles {
  explicit Oracles(OpMemory& memory)
      : op_case(memory.op_case()),
        spec(op_case.spec),
        x(Load(memory, graph::kX)),
        w(Load(memory, graph::kW)),
        b(Load(memory, graph::kB)),
        residual(Load(memory, graph::kResidual)),
        tokens(memory.tokens()) {}

  Real Bias(int64_t c) const { return b.empty() ? Real{0} : b[static_cast<size_t>(c)]; }
  Real X(int64_t index) const { return x[static_cast<size_t>(index)]; }
  Real W(int64_t index) const { return w[static_cast<size_t>(index)]; }
  int64_t Token(int64_t row) const { return tokens[static_cast<size_t>(row)]; }
  Real Weight(int64_t i, int64_t c) const {
    return spec.weight_layout == graph::WeightLayout::kInOut ? W(i * spec.cols + c)
                                                             : W(c * spec.inner + i);
  }

  void Embedding() {
    for (int64_t r = 0; r < spec.rows; ++r) {
      const int64_t id = Token(r) - spec.vocab_begin;
      for (int64_t c = 0; c < spec.cols; ++c) {
        result.y.push_back(id >= 0 && id < spec.vocab_rows ? W(id * spec.cols + c) : Real{0});
      }
    }
  }

  void PositionEmbedding() {
    for (int64_t r = 0; r < spec.rows; ++r) {
      const int64_t position = (spec.row_begin + r) % spec.tokens;
      for (int64_t c = 0; c < spec.cols; ++c) {
        result.y.push_back(X(r * spec.cols + c) + W(position * spec.cols + c));
      }
    }
  }

  void Norm() {
    const bool layer_norm = spec.kind == OpKind::kLayerNorm;
    for (int64_t r = 0; r < spec.rows; ++r) {
      Real mean = 0;
      Real mean_square = 0;
      for (int64_t c = 0; c < spec.cols; ++c) {
        mean += X(r * spec.cols + c) / static_cast<Real>(spec.cols);
        mean_square += X(r * spec.cols + c) * X(r * spec.cols + c) / static_cast<Real>(spec.cols);
      }
      if (!layer_norm) mean = 0;
      const Real rstd = 1 / std::sqrt(mean_square - mean * mean + Real{spec.epsilon});
      if (layer_norm) result.stats.push_back(mean);
      result.stats.push_back(rstd);
      for (int64_t c = 0; c < spec.cols; ++c) {
        result.y.push_back((X(r * spec.cols + c) - mean) * rstd * W(c) + Bias(c));
      }
    }
  }

  void Product() {
    for (int64_t r = 0; r < spec.rows; ++r) {
      for (int64_t c = 0; c < spec.cols; ++c) {
        Real sum = spec.kind == OpKind::kLinear ? Bias(c) : Real{0};
        if (!residual.empty()) sum += residual[static_cast<size_t>(r * spec.cols + c)];
        for (int64_t i = 0; i < spec.inner; ++i) sum += X(r * spec.inner + i) * Weight(i, c);
        result.y.push_back(sum);
      }
    }
  }

  void LmHeadLoss() {
    Product();
    for (int64_t r = 0; r < spec.rows; ++r) {
      const auto first = result.y.begin() + r * spec.cols;
      Real largest = -std::numeric_limits<Real>::infinity();
      for (int64_t c = 0; c < spec.cols; ++c) largest = std::max(largest, first[c]);
      Real sum = 0;
      for (int64_t c = 0; c < spec.cols; ++c) sum += std::exp(first[c] - largest);
      const int64_t id = Token(r) - spec.vocab_begin;
      const bool local = Token(r) >= 0 && id >= 0 && id < spec.cols;
      result.stats.insert(result.stats.end(), {largest, sum, local ? first[id] : Real{0}});
    }
  }

  void LossCombine() {
    for (int64_t r = 0; r < spec.rows; ++r) {
      Real sum = 0;
      Real target = 0;
      for (int64_t rank = 0; rank < spec.tensor_ranks; ++rank) {
        const int64_t share = 3 * (rank * spec.rows + r);
        sum += X(share + 1) * std::exp(X(share));
        target += X(share + 2);
      }
      result.y.push_back(std::log(sum));
      if (Token(r) >= 0) result.loss += std::log(sum) - target;
    }
  }

  // In place: from y as it was, a complex number per pair.
  void Rope(const Values& y) {
    result.y = y;
    const int64_t width = (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
    const int64_t half = spec.head_dim / 2;
    for (int64_t r = 0; r < spec.rows; ++r) {
      for (int64_t h = 0; h < spec.heads + spec.kv_heads; ++h) {
        for (int64_t i = 0; i < half; ++i) {
          const Real frequency = std::pow(
              Real{spec.rope_theta}, -2 * static_cast<Real>(i) / static_cast<Real>(spec.head_dim));
          const Real angle = static_cast<Real>((spec.row_begin + r) % spec.tokens) * frequency;
          const size_t a = static_cast<size_t>(r * width + h * spec.head_dim + i);
          const size_t b = a + static_cast<size_t>(half);
          result.y[a] = y[a] * std::cos(angle) - y[b] * std::sin(angle);
          result.y[b] = y[a] * std::sin(angle) + y[b] * std::cos(angle);
        }
      }
    }
  }

  void Attention() {
    const int64_t width = (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
    result.y.assign(static_cast<size_t>(spec.rows * spec.cols), 0);
    for (int64_t r = 0; r < spec.rows; ++r) {
      const int64_t token = r % spec.tokens;
      const int64_t sample = op_case.first_sample + r / spec.tokens;
      for (int64_t h = 0; h < spec.heads; ++h) {
        const int64_t group = h * spec.kv_heads / spec.heads;
        Values weights;
        Real total = 0;
        for (int64_t k = 0; k <= token; ++k) {
          Real score = 0;
          for (int64_t d = 0; d < spec.head_dim; ++d) {
            score += X(r * width + h * spec.head_dim + d) *
                     X((r - token + k) * width + (spec.heads + group) * spec.head_dim + d);
          }
          weights.push_back(std::exp(score / std::sqrt(static_cast<Real>(spec.head_dim))));
          total += weights.back();
        }
        result.stats.push_back(std::log(total));
        for (int64_t k = 0; k <= token; ++k) {
          const int64_t head = spec.head_begin + h;
          const int64_t element =
              ((sample * spec.global_heads + head) * spec.tokens + token) * spec.tokens + k;
          const Real p = weights[static_cast<size_t>(k)] / total * MaskFactor(op_case, element);
          const int64_t value =
              (r - token + k) * width + (spec.heads + spec.kv_heads + group) * spec.head_dim;
          for (int64_t d = 0; d < spec.head_dim; ++d) {
            result.y[static_cast<size_t>(r * spec.cols + h * spec.head_dim + d)] +=
                p * X(value + d);
          }
        }
      }
    }
  }

  void ElementWise() {
    for (int64_t r = 0; r < spec.rows; ++r) {
      for (int64_t c = 0; c < spec.cols; ++c) {
        const int64_t index = r * spec.cols + c;
        if (spec.kind == OpKind::kGelu) {
          const Real v = X(index);
          const Real root = std::sqrt(Real{2} / std::acos(Real{-1}));
          result.y.push_back(v / 2 * (1 + std::tanh(root * (v + Real{0.044715L} * v * v * v))));
        } else if (spec.kind == OpKind::kSwiGlu) {
          const Real gate = X(2 * r * spec.cols + c);
          result.y.push_back(gate / (1 + std::exp(-gate)) * X((2 * r + 1) * spec.cols + c));
        } else {
          const int64_t row = spec.row_begin + r;
          const int64_t sample = op_case.first_sample + row / spec.tokens;
          const int64_t element = (sample * spec.tokens + row % spec.tokens) * spec.cols + c;
          const Real stream = residual.empty() ? Real{0} : residual[static_cast<size_t>(index)];
          result.y.push_back(stream + (X(index) + Bias(c)) * MaskFactor(op_case, element));
        }
      }
    }
  }

  const OpCase& op_case;
  const OpSpec& spec;
  Values x, w, b, residual;
  std::vector<int32_t> tokens;
  OracleResult result;
};

}  // namespace

OracleResult Oracle(OpMemory& memory) {
  Oracles oracles(memory);
  switch (memory.op_case().spec.kind) {
    case OpKind::kEmbedding:
      oracles.Embedding();
      break;
    case OpKind::kPositionEmbedding:
      oracles.PositionEmbedding();
      break;
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
      oracles.Norm();
      break;
    case OpKind::kLinear:
      oracles.Product();
      break;
    case OpKind::kLmHeadLoss:
      oracles.LmHeadLoss();
      break;
    case OpKind::kLossCombine:
      oracles.LossCombine();
      break;
    case OpKind::kRope:
      oracles.Rope(Load(memory, graph::kY));
      break;
    case OpKind::kAttention:
      oracles.Attention();
      break;
    default:
      oracles.ElementWise();
  }
  return oracles.result;
}

}  // namespace trireme::kernels
