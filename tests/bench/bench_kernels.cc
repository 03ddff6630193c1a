// The CPU kernels at the shapes of GPT-2 124M, variants that its step does not run among them, each
// beside the machine's limit (runtime/benchmark). `trireme bench` is the short way; this one
// chooses shapes, repeats and the clock. Prints a table, an estimate of a training step (kernels
// times their number in a step), and one line of JSON.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/status_macros.h"
#include "runtime/benchmark/limits.h"
#include "runtime/benchmark/operator_lines.h"
#include "runtime/benchmark/operator_table.h"
#include "runtime/tensor/dtype.h"

namespace trireme::benchmark {
namespace {

struct Options {
  std::string dtype = "f32", clock = "wall", only;
  int threads = 2, repeats = 7;
  LineOptions lines;
};

class Table {
 public:
  void Add(const Measured& m) {
    const char* unit = m.line.flops > 0 ? "GFLOP/s" : "GB/s";
    std::printf("%-26s %9.3f ms %8.1f %-8s limit %7.1f  ratio %.2f\n", m.line.name.c_str(),
                m.seconds * 1e3, m.rate * 1e-9, unit, m.limit * 1e-9, m.ratio());
    std::fflush(stdout);
    json_["lines"].push_back({{"name", m.line.name},
                              {"ms", m.seconds * 1e3},
                              {"rate", m.rate * 1e-9},
                              {"unit", unit},
                              {"limit", m.limit * 1e-9},
                              {"ratio", m.ratio()},
                              {"per_step", m.line.per_step}});
    step_ms_ += m.line.per_step * m.seconds * 1e3;
    least_ms_ += m.line.per_step * m.LeastSeconds() * 1e3;
  }
  void Finish(const Options& options) {
    const double tokens = static_cast<double>(options.lines.batch * options.lines.tokens);
    std::printf("sum of a training step: %.0f ms, %.0f tokens/s; at the limits %.0f ms\n", step_ms_,
                tokens / step_ms_ * 1e3, least_ms_);
    json_["threads"] = options.threads;
    json_["dtype"] = options.dtype;
    json_["step_ms"] = step_ms_;
    json_["roofline_ms"] = least_ms_;
    json_["tokens_per_s"] = tokens / step_ms_ * 1e3;
    std::printf("%s\n", json_.dump().c_str());
  }

 private:
  nlohmann::json json_ = {{"bench", "kernels"}};
  double step_ms_ = 0, least_ms_ = 0;
};

absl::Status Run(const Options& options) {
  omp_set_num_threads(options.threads);
  const Stopwatch stopwatch(options.clock == "cpu" ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC);
  ASSIGN_OR_RETURN(const auto limits, Limits::Create(options.threads, stopwatch));
  Table table;
  for (const OperatorLine& line : LinesOfGpt2(options.lines)) {
    if (line.name.find(options.only) == std::string::npos) continue;
    ASSIGN_OR_RETURN(const Measured measured,
                     Measure(line, *limits, {.repeats = options.repeats, .seconds = 0}));
    table.Add(measured);
  }
  table.Finish(options);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("The CPU kernels at the shapes of GPT-2 124M, beside the machine's limits.");
  Options options;
  app.add_option("--dtype", options.dtype, "f32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--threads", options.threads, "OpenMP threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--batch", options.lines.batch, "samples")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  app.add_option("--tokens", options.lines.tokens, "tokens of a sample")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--heads", options.lines.heads, "of attention")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--repeats", options.repeats, "rounds of a line, three runs each")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--only", options.only, "a part of the names of the lines");
  app.add_option("--clock", options.clock, "wall, or cpu: the processor's time of the process")
      ->capture_default_str()
      ->check(CLI::IsMember({"wall", "cpu"}));
  CLI11_PARSE(app, argc, argv);
  if (options.dtype == "bf16") options.lines.dtype = tensor::DType::kBf16;
  const absl::Status status = Run(options);
  if (!status.ok()) std::fprintf(stderr, "bench_kernels: %s\n", base::MessageOf(status).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace trireme::benchmark

int main(int argc, char** argv) { return trireme::benchmark::Main(argc, argv); }
