// The operators of GPT-2 124M as lines of a table: what each is, its work, and how often a training
// step runs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/op_spec.h"
#include "runtime/tensor/dtype.h"

namespace trireme::benchmark {

// kAdamWSlots: from slot to slot, with sums (docs/adr/0024).
enum class LineKind : uint8_t { kOperator, kAdamW, kAdamWSlots, kSumOfSquares };

struct OperatorLine {
  std::string name;
  LineKind kind = LineKind::kOperator;
  graph::OpSpec spec;     // of the dtype, whatever the kind
  double per_step = 0;    // 0: of other models, or with dropout
  double flops = 0;       // of a run; 0: bound by memory
  double bytes = 0;       // of a run: the least that it reads and writes
  bool has_base = false;  // an input-grad that adds to another
};

struct LineOptions {
  tensor::DType dtype = tensor::DType::kF32;
  int64_t batch = 4;
  int64_t tokens = 256;
  int64_t heads = 12;  // of attention, 64 wide each
};

// In the order of the table. Both layouts of weights, and variants that GPT-2 has not
// (per_step 0).
std::vector<OperatorLine> LinesOfGpt2(const LineOptions& options);

// Parameters that a line of another kind than kOperator goes through.
constexpr int64_t kOptimizerParameters = int64_t{32} << 20;
constexpr double kGpt2Parameters = 124439808;

}  // namespace trireme::benchmark
