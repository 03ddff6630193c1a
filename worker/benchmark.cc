#include "worker/benchmark.h"

#include <omp.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "runtime/base/status_macros.h"
#include "runtime/benchmark/limits.h"
#include "runtime/benchmark/operator_table.h"
#include "runtime/benchmark/other_load.h"

namespace trireme::worker {
namespace {
using tensor::DType;

// One line that the next overwrites.
void ShowProgress(size_t index, size_t count, const std::string& what) {
  std::fprintf(stderr, "\r\033[K%zu of %zu: %s", index + 1, count, what.c_str());
  std::fflush(stderr);
}

// As `trireme` tells its errors: whoever has typed `trireme bench` knows of no worker and its log.
void PrintError(const std::string& text) { std::fprintf(stderr, "trireme: %s\n", text.c_str()); }

absl::StatusOr<benchmark::OperatorTable> MeasureAll(const BenchmarkOptions& options) {
  benchmark::TableOptions table;
  if (options.dtype != "bf16") table.dtypes.push_back(DType::kF32);
  if (options.dtype != "f32") table.dtypes.push_back(DType::kBf16);
  table.seconds = options.seconds;
  table.only = options.only;
  const int threads = options.threads > 0 ? options.threads : omp_get_num_procs();
  omp_set_num_threads(threads);
  const auto start = std::chrono::steady_clock::now();
  const benchmark::OtherLoad others;
  ASSIGN_OR_RETURN(const auto limits, benchmark::Limits::Create(threads, benchmark::Stopwatch()));
  const bool shown = isatty(STDERR_FILENO) == 1;
  auto measured = benchmark::MeasureGpt2(
      table, *limits, [shown](size_t index, size_t count, const std::string& what) {
        if (shown) ShowProgress(index, count, what);
      });
  if (shown) std::fputs("\r\033[K", stderr);
  if (measured.ok()) {
    measured->seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    measured->other_load = others.Share();
  }
  return measured;
}

}  // namespace

void AddBenchmarkOptions(CLI::App& app, BenchmarkOptions& options) {
  app.add_option("--dtype", options.dtype, "f32, bf16 or both")
      ->check(CLI::IsMember({"f32", "bf16", "both"}));
  app.add_option("--threads", options.threads, "default: one per core")->check(CLI::Range(0, 4096));
  app.add_option("--seconds", options.seconds,
                 "of all of it, at least a run or two of each operator")
      ->check(CLI::Range(1, 3600));
  app.add_option("--only", options.only, "a part of the operators' names");
  app.add_flag("--json", options.json, "the table as one line of JSON");
}

base::ExitCode RunBenchmark(const BenchmarkOptions& options) {
  const auto table = MeasureAll(options);
  if (!table.ok()) {
    PrintError(base::MessageOf(table.status()));
    return base::ExitCodeOf(table.status());
  }
  const std::string text =
      options.json ? benchmark::JsonOf(*table) + "\n" : benchmark::TextOf(*table);
  std::fputs(text.c_str(), stdout);
  const bool written = std::fflush(stdout) == 0;
  if (!written) PrintError("the output could not be written");
  return written ? base::kOk : base::kBadInput;
}

}  // namespace trireme::worker
