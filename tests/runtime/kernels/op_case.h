// One operator, run by one kernel on random operands: for gradient tests and for comparing a fast
// kernel with the reference over many shapes. Operands lie in guarded memory with sentinel values
// between rows (ld > columns), so a kernel that writes where it must not is named.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/graph/op_schema.h"
#include "runtime/graph/op_spec.h"
#include "runtime/kernels/kernel.h"

namespace trireme::kernels {

enum class BaseMemory : uint8_t { kAbsent, kSeparate, kSameAsDx };

// What beside the OpSpec decides a run: which of the operands that may be absent are, and OpCall.
struct OpCase {
  graph::OpSpec spec;
  bool bias = true;                       // kB in the forward, kDB in the weight gradient
  bool residual = true;                   // ResidualAdd
  BaseMemory base = BaseMemory::kAbsent;  // norms, Linear, Gelu
  bool restored = false;                  // kY of an input-grad that can give it once more
  bool accumulate = false;
  bool training = true;
  int64_t first_sample = 0;
  uint64_t seed = 1;
  uint64_t step = 0;
  double loss_scale = 0.125;
  int64_t global_vocab =
      0;  // ids are drawn below it; 0: two more than this rank's vocabulary ends with
  double not_counted = 0.25;  // share of the targets of LmHeadLoss and LossCombine that are -1
  uint64_t values = 1;        // seed of the operands' values
  // The dtype whose operands can hold them, whatever they are stored in.
  tensor::DType values_in = tensor::DType::kF32;
};

// x_ld, y_ld and (LmHeadLoss) vocab_rows of a packed layout, each `padding` elements wider than it
// must be.
graph::OpSpec WithLeadingDimensions(graph::OpSpec spec, int64_t padding);

// Small cases of one operator and phase over uneven shapes, both weight layouts, one column, single
// rows, leading dimensions, grouped heads, dropout, with and without bias, residual, base and
// accumulation. The first are ordinary, the last are empty (no rows, no heads, no vocabulary, no
// inner dimension). None if the phase does not exist.
std::vector<OpCase> VariedCases(graph::OpKind kind, graph::Phase phase, tensor::DType dtype);

// For INFO: the fields that differ from one case to another.
std::string Describe(const OpCase& op_case);

struct OperandShape : graph::Shape {
  bool written = false;
};

// Nothing where the operator has no such operand. kTokens and the f64 sum of LossCombine (kDB) are
// stated too.
std::optional<OperandShape> ShapeOf(const OpCase& op_case, graph::Operand operand);

// What `operand`, which the phase must have, is stored in.
tensor::DType StoredIn(const graph::OpSpec& spec, graph::Operand operand);

// The operands of one case. Values are random in (-1, 1) and exact in values_in, the same for every
// dtype and leading dimension, but for the rounding to what they are stored in; weights of norms
// are around 1, statistics are random too: see PrepareBackward.
class OpMemory {
 public:
  explicit OpMemory(const OpCase& op_case);

  bool Has(graph::Operand operand) const { return shape_[operand].has_value(); }
  // Dense values [rows * cols], leading dimension removed.
  std::vector<double> Get(graph::Operand operand) const;
  void Set(graph::Operand operand, const std::vector<double>& values);
  double At(graph::Operand operand, int64_t index) const;
  void SetAt(graph::Operand operand, int64_t index, double value);
  std::vector<int32_t>& tokens() { return tokens_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }

  // Runs `kernel` once. Empty, or what it damaged: an operand it may only read, or memory outside
  // of its operands.
  std::string Run(Kernel& kernel);

  const OpCase& op_case() const { return case_; }

 private:
  size_t Offset(graph::Operand operand, int64_t index) const;  // bytes
  std::byte* Memory(graph::Operand operand);
  const std::byte* Memory(graph::Operand operand) const;

  OpCase case_;
  std::array<std::optional<OperandShape>, graph::kOperandCount> shape_;
  std::array<std::vector<std::byte>, graph::kOperandCount> memory_;
  std::vector<int32_t> tokens_;
  std::vector<std::byte> scratch_;
};

// The first kernel of `registry` that takes the case; fails the test if none does.
std::unique_ptr<Kernel> PrepareKernel(const KernelRegistry& registry, const graph::OpSpec& spec);

// Operands for a backward phase that fit together: statistics, outputs and lse are what the forward
// of `registry` gives for the same x and weights. Of a forward phase: just the random operands.
OpMemory PrepareBackward(const KernelRegistry& registry, const OpCase& op_case);

// Largest |a - b| over the operands the kernel writes, over the largest |a| of that operand (at
// least `floor`). NaN against a number is infinite; NaN against NaN and equal infinities are 0.
struct Difference {
  double worst = 0;
  std::string where;  // "kDX[17]: 0.5 against 0.25"
};
Difference Compare(const OpMemory& expected, const OpMemory& actual, double floor = 1e-30);

// Operands of the values of `memory` in another dtype, each rounded once.
OpMemory Converted(const OpMemory& memory, tensor::DType dtype);

// f64 operands of the case, each of a value that the case's dtype holds, so that both compute from
// the same. Those of a backward come from the f64 forward of `exact`.
OpMemory ExactOperands(const KernelRegistry& exact, const OpCase& op_case);

// Runs the first f64 kernel of `exact` on ExactOperands, and the first kernel of `actual` for the
// case's dtype on the same values; compares as Compare does, and damage counts as infinite.
Difference CompareKernels(const KernelRegistry& exact, const KernelRegistry& actual,
                          const OpCase& op_case, double floor = 1e-30);

}  // namespace trireme::kernels
