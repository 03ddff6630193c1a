#include "tests/runtime/kernels/bounds.h"

#include <algorithm>
#include <cmath>
#include <sstream>
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
    std::vector<double> on_the_way;
    if (spec.dtype == DType::kBf16 && spec.kind == OpKind::kLmHeadLoss) {
      on_the_way = StoredByHead(exact, operand);
    }
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
