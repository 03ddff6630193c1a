// An operator of a table, ready to run: prepared kernels on operands of its shapes. They rotate
// through 128 MiB, so that what a step finds in memory is in memory here too.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/benchmark/operator_lines.h"

namespace trireme::benchmark {

class Subject {
 public:
  virtual ~Subject() = default;
  // Each time on the next operands.
  virtual void Run() = 0;
};

// ResourceExhausted where the memory is not to be had.
absl::StatusOr<std::unique_ptr<Subject>> MakeSubject(const OperatorLine& line, int threads);

}  // namespace trireme::benchmark
