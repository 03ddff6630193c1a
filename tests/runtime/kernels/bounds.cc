#include "tests/runtime/kernels/bounds.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>
#include <vector>

namespace trireme::kernels {
namespace {

using graph::Operand;
using graph::OpKind;
using graph::OpSpec;
using graph::Phase;
using tensor::DType;

enum class OfRow : uint8_t { kSum, kGreatest };

// Of the absolute values of each row, [rows][cols].
std::vector<double> Rows(const OpMemory& memory, Operand operand, OfRow what) {
  const OperandShape shape = *ShapeOf(memory.op_case(), operand);
  std::vector<double> rows(static_cast<size_t>(shape.rows));
  for (int64_t i = 0; i < shape.rows * shape.cols; ++i) {
    double& row = rows[static_cast<size_t>(i / shape.cols)];
    const double value = std::abs(memory.At(operand, i));
    row = what == OfRow::kSum ? row + value : std::max(row, value);
  }
  return rows;
}

// The head computes on with what it has stored. Its statistics are those of rounded logits, each of
// which errs by half a unit: an exponential errs by that of the two greatest in its exponent. And
// dx is a sum of rounded gradients of logits times weights below 1.
std::vector<double> StoredByHead(const OpMemory& exact, Operand operand) {
  const OpSpec& spec = exact.op_case().spec;
  std::vector<double> errors;
  if (operand == graph::kStats) {
    const std::vector<double> greatest = Rows(exact, graph::kY, OfRow::kGreatest);
    for (int64_t i = 0; i < 3 * spec.rows; ++i) {
      const double logit = greatest[static_cast<size_t>(i / 3)];
      const double share = i % 3 == 1 ? std::expm1(2 * kHalfUnitOfBf16 * logit) : kHalfUnitOfBf16;
      errors.push_back(share * std::abs(exact.At(operand, i)));
    }
  } else if (operand == graph::kDX) {
    const std::vector<double> sums = Rows(exact, graph::kY, OfRow::kSum);
    for (int64_t i = 0; i < spec.rows * spec.inner; ++i) {
      errors.push_back(kHalfUnitOfBf16 * sums[static_cast<size_t>(i / spec.inner)]);
    }
  }
  return errors;
}

// Attention may round probabilities and the gradients of scores before it multiplies them: y, dv,
// dq and dk err by half a unit of each of their terms. Dropout scales what it keeps.
class RoundedScores {
 public:
  explicit RoundedScores(const OpMemory& exact)
      : spec_(exact.op_case().spec), x_(exact.Get(graph::kX)) {
    const bool forward = spec_.phase == Phase::kForward;
    errors_.assign(forward ? static_cast<size_t>(spec_.rows * Out()) : x_.size(), 0);
    if (!forward) {
      y_ = exact.Get(graph::kY);
      dy_ = exact.Get(graph::kDY);
    }
    stats_ = exact.Get(graph::kStats);
    for (int64_t row = 0; row < spec_.rows; ++row) {
      for (int64_t head = 0; head < spec_.heads; ++head) AddQuery(row, head);
    }
  }
  std::vector<double> Take() { return std::move(errors_); }

 private:
  int64_t Out() const { return spec_.heads * spec_.head_dim; }
  int64_t In() const { return (spec_.heads + 2 * spec_.kv_heads) * spec_.head_dim; }
  static double At(const std::vector<double>& values, int64_t i) {
    return values[static_cast<size_t>(i)];
  }
  double Dot(const std::vector<double>& a, int64_t i, const std::vector<double>& b,
             int64_t j) const {
    double sum = 0;
    for (int64_t d = 0; d < spec_.head_dim; ++d) sum += At(a, i + d) * At(b, j + d);
    return sum;
  }
  // Half a unit of factor * from[i ..] for the elements from `to` on.
  void Add(int64_t to, double factor, const std::vector<double>& from, int64_t i) {
    for (int64_t d = 0; d < spec_.head_dim; ++d) {
      errors_[static_cast<size_t>(to + d)] += kHalfUnitOfBf16 * std::abs(factor * At(from, i + d));
    }
  }

  void AddQuery(int64_t row, int64_t head) {
    const int64_t width = spec_.head_dim;
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const double kept = 1 / (1 - spec_.dropout_p);
    const int64_t q = row * In() + head * width;
    const int64_t key_head = spec_.heads + head / (spec_.heads / spec_.kv_heads);
    const int64_t y = row * Out() + head * width;
    const double lse = At(stats_, row * spec_.heads + head);
    for (int64_t key = row - row % spec_.tokens; key <= row; ++key) {
      const int64_t k = key * In() + key_head * width, v = k + spec_.kv_heads * width;
      const double p = std::exp(scale * Dot(x_, q, x_, k) - lse);
      if (spec_.phase == Phase::kForward) {
        Add(y, kept * p, x_, v);
        continue;
      }
      const double ds =
          scale * p * (kept * std::abs(Dot(dy_, y, x_, v)) + std::abs(Dot(dy_, y, y_, y)));
      Add(v, kept * p, dy_, y);
      Add(q, ds, x_, k);
      Add(k, ds, x_, q);
    }
  }

  OpSpec spec_;
  std::vector<double> x_, y_, dy_, stats_, errors_;
};

// What `operand` errs by because of values that were rounded on the way to it.
std::vector<double> RoundedOnTheWay(const OpMemory& exact, const OpSpec& spec, Operand operand) {
  if (spec.dtype != DType::kBf16) return {};
  if (spec.kind == OpKind::kLmHeadLoss) return StoredByHead(exact, operand);
  if (spec.kind == OpKind::kAttention && operand != graph::kStats) {
    return RoundedScores(exact).Take();
  }
  return {};
}

}  // namespace

std::string Beyond(const OpMemory& exact, const OpMemory& actual, double sum) {
  const OpSpec& spec = actual.op_case().spec;
  double worst = 1;
  std::ostringstream text;
  for (int name = 0; name < graph::kOperandCount; ++name) {
    const auto operand = static_cast<Operand>(name);
    const auto shape = ShapeOf(exact.op_case(), operand);
    if (!shape || !shape->written) continue;
    const std::vector<double> a = exact.Get(operand), b = actual.Get(operand);
    const std::vector<double> on_the_way = RoundedOnTheWay(exact, spec, operand);
    double greatest = 1e-30;
    for (const double value : a) {
      if (std::isfinite(value)) greatest = std::max(greatest, std::abs(value));
    }
    const double rounding = StoredIn(spec, operand) == DType::kBf16 ? kHalfUnitOfBf16 : 0;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      const double bound =
          sum * greatest + rounding * std::abs(a[i]) + (on_the_way.empty() ? 0 : on_the_way[i]);
      const double share = std::abs(a[i] - b[i]) / bound;
      if (share <= worst) continue;  // false for a NaN
      worst = share;
      text.str("");
      text << "operand " << name << "[" << i << "]: " << a[i] << " against " << b[i] << ", "
           << share << " of the bound";
    }
  }
  return text.str();
}

}  // namespace trireme::kernels
