// Lines measured beside their limits, and the table of all of them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/benchmark/limits.h"
#include "runtime/benchmark/operator_lines.h"
#include "runtime/tensor/dtype.h"

namespace trireme::benchmark {

struct Measured {
  OperatorLine line;
  double seconds = 0;  // the best run
  double rate = 0;     // of line.flops, else of line.bytes, a second
  double limit = 0;    // the best that the machine did meanwhile
  double ratio() const { return rate / limit; }
  double LeastSeconds() const { return seconds * ratio(); }
};

// When a line has been measured enough: after `repeats` rounds of a limit and three runs, or after
// the run in which `seconds` have passed, preparation among them: at least two, or one that took
// long. 0: no such end.
struct Effort {
  int repeats = 0;
  double seconds = 0;
  std::chrono::nanoseconds limit_age{0};  // up to which one that was measured before will do
};
absl::StatusOr<Measured> Measure(const OperatorLine& line, Limits& limits, const Effort& effort);

struct TableOptions {
  std::vector<tensor::DType> dtypes;
  double seconds = 50;  // of all lines; each takes a run or two at least, however long
  std::string only;     // a part of the names of lines; empty: all
};

struct OperatorTable {
  struct Group {
    tensor::DType dtype = tensor::DType::kF32;
    double product_rate = 0;         // flops a second, best of the run
    double packed_product_rate = 0;  // 0: none
    std::vector<Measured> rows;      // the same operators in every group
  };
  int threads = 0;
  bool whole = true;       // all operators of a step
  double memory_rate = 0;  // bytes a second, best of the run; 0: not measured
  double seconds = 0;      // that all of it took
  double other_load = 0;   // what others took of the processors meanwhile, 0 to 1 (other_load.h)
  std::vector<Group> groups;
};

// `progress`: a line is about to be measured.
using Progress = std::function<void(size_t index, size_t count, const std::string& what)>;

// The operators of GPT-2 124M at 1,024 rows: 4 samples of 256 tokens, and attention of one of 1,024
// too, for nothing else of a step depends on how rows make samples. InvalidArgument where no name
// holds `only`.
absl::StatusOr<OperatorTable> MeasureGpt2(const TableOptions& options, Limits& limits,
                                          const Progress& progress);

std::string TextOf(const OperatorTable& table);
// One line.
std::string JsonOf(const OperatorTable& table);

}  // namespace trireme::benchmark
