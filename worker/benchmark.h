// `trireme-worker bench`: the operators beside the limits of this machine, without MPI; what
// `trireme bench` shows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "runtime/base/exit_code.h"

namespace trireme::worker {

struct BenchmarkOptions {
  std::string dtype = "both";  // f32, bf16 or both
  int threads = 0;             // 0: one per core that this process may use
  double seconds = 50;
  std::string only;
  bool json = false;
};

void AddBenchmarkOptions(CLI::App& app, BenchmarkOptions& options);
// Writes the table to stdout and, where that is a terminal, its progress to stderr.
base::ExitCode RunBenchmark(const BenchmarkOptions& options);

}  // namespace trireme::worker
