// Training steps of a named model on random tokens: tokens per second beside the speed of the
// matrix product measured in the same run. One process, or a rank under mpirun (data parallel
// unless told otherwise). Last line JSON.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/mpi/mpi_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/model/model.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/data/random_dataset.h"

namespace trireme {
namespace {

struct Options {
  std::string config = "gpt2";
  int64_t micro_batch = 4, tokens = 256, accumulation = 1;
  int threads = 2, steps = 8, warmup = 2;
  int64_t tensor = 1, pipeline = 1, zero = 0, loss_tile = 0;
  std::string dtype = "f32", kernels = "cpu", schedule = "1f1b";
  bool breakdown = false;
};

absl::StatusOr<v1::JobSpec> JobFor(const Options& options, int ranks) {
  struct Shape {
    const char* name;
    int64_t layers, heads, hidden, vocabulary, positions;
  };
  // The shapes of the PyTorch comparison.
  constexpr Shape kShapes[] = {{"gpt2", 12, 12, 768, 50257, 1024},
                               {"10m", 6, 6, 384, 50257, 256},
                               {"10mchar", 6, 6, 384, 65, 256}};
  const auto* shape = std::find_if(std::begin(kShapes), std::end(kShapes),
                                   [&](const Shape& each) { return options.config == each.name; });
  if (shape == std::end(kShapes)) {
    return absl::InvalidArgumentError("--config: expected gpt2, 10m or 10mchar");
  }
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_num_hidden_layers(shape->layers);
  config.set_num_attention_heads(shape->heads);
  config.set_hidden_size(shape->hidden);
  config.set_vocab_size(shape->vocabulary);
  config.set_max_position_embeddings(shape->positions);
  for (auto set : {&v1::ModelConfig::set_embd_pdrop, &v1::ModelConfig::set_attn_pdrop,
                   &v1::ModelConfig::set_resid_pdrop}) {
    (config.*set)(0);
  }
  const int64_t replicas = ranks / (options.tensor * options.pipeline);
  job.mutable_training()->set_global_batch_size(options.micro_batch * options.accumulation *
                                                replicas);
  job.mutable_training()->set_micro_batch_size(options.micro_batch);
  job.mutable_training()->set_dtype(options.dtype);
  job.mutable_training()->set_loss_tile_rows(options.loss_tile);
  job.mutable_data()->set_sequence_length(options.tokens);
  job.mutable_optimizer()->set_learning_rate(3e-4);
  job.mutable_optimizer()->set_gradient_clip_norm(0);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_tensor_parallel_size(options.tensor);
  parallelism.set_pipeline_parallel_size(options.pipeline);
  parallelism.set_zero_stage(options.zero);
  parallelism.set_schedule(options.schedule);
  job.mutable_runtime()->set_kernels(options.dtype == "f64" ? "reference" : options.kernels);
  spec::ApplyDefaults(job);
  return job;
}

// Flops per second of the product C = A B of a layer's size, best of a few runs.
absl::StatusOr<double> ProductSpeed(const kernels::KernelRegistry& registry, tensor::DType dtype,
                                    const Options& options) {
  constexpr int64_t kRows = 1024, kInner = 768, kCols = 3072;
  graph::OpSpec spec;
  spec.dtype = dtype;
  spec.weight_layout = graph::WeightLayout::kInOut;
  spec.rows = kRows;
  spec.inner = spec.x_ld = kInner;
  spec.cols = spec.y_ld = kCols;
  std::vector<std::byte> scratch(64 << 20);
  ASSIGN_OR_RETURN(const auto kernel, registry.Prepare(spec, {.scratch_limit_bytes = scratch.size(),
                                                              .threads = options.threads}));
  std::vector<double> x(kRows * kInner, 0.5), w(kInner * kCols, 0.25), y(kRows * kCols);
  graph::OpCall call;
  call.operand[graph::kX] = x.data();
  call.operand[graph::kW] = w.data();
  call.operand[graph::kY] = y.data();
  call.scratch = scratch;
  double best = 1e30;
  for (int run = 0; run < 12; ++run) {
    const auto start = std::chrono::steady_clock::now();
    kernel->Run(call);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2.0 * kRows * kInner * kCols / best;
}

void PrintBreakdown(const engine::Engine& engine) {
  for (const engine::InstructionSpan& span : engine.last_trace().instructions()) {
    const double ms = static_cast<double>(span.end_ns - span.start_ns) * 1e-6;
    if (ms < 0.5) continue;
    std::printf("  %-10s micro-batch %u  %8.2f ms\n",
                v1::InstructionKind_Name(static_cast<v1::InstructionKind>(span.kind)).c_str(),
                span.micro_batch, ms);
  }
}

absl::Status Run(const Options& options, comm::Fabric& fabric) {
  omp_set_num_threads(options.threads);
  ASSIGN_OR_RETURN(const v1::JobSpec job, JobFor(options, fabric.size()));
  ASSIGN_OR_RETURN(const v1::Plan plan, plan::MakePlan(job, fabric.size()));
  kernels::KernelRegistry registry;
  if (job.runtime().kernels() == "cpu") kernels::RegisterCpuKernels(registry);
  kernels::RegisterReferenceKernels(registry);
  const data::RandomDataset dataset({.vocab_size = job.model().config().vocab_size(),
                                     .sequence_length = options.tokens,
                                     .samples = 1 << 20,
                                     .ignored_targets = false});
  ASSIGN_OR_RETURN(
      auto engine,
      engine::Engine::Create(plan, fabric, dataset,
                             {.kernels = &registry, .threads = options.threads, .prefault = true}));
  engine->InitializeState();
  ASSIGN_OR_RETURN(const double product, ProductSpeed(registry, plan::ComputeDType(job), options));
  std::vector<double> seconds;
  double exposed = 0;
  engine::StepReport report;
  for (int step = 0; step < options.warmup + options.steps; ++step) {
    ASSIGN_OR_RETURN(report, engine->RunStep(static_cast<uint64_t>(step)));
    if (step < options.warmup) continue;
    seconds.push_back(report.duration_s);
    ASSIGN_OR_RETURN(const engine::ExposureReport exposure, engine->MeasureExposure());
    exposed += exposure.exposed.mean_s;
  }
  if (options.breakdown && engine->rank() == 0) PrintBreakdown(*engine);
  std::sort(seconds.begin(), seconds.end());
  const double tokens = static_cast<double>(report.tokens);
  const double median = seconds[seconds.size() / 2];
  const double p99 = seconds[std::min(seconds.size() - 1, seconds.size() * 99 / 100)];
  ASSIGN_OR_RETURN(const auto graph, model::BuildModel(job.model().config()));
  const double flops =
      model::TrainingFlopsPerToken(graph, job.model().config(), options.tokens) * tokens;
  const double peak = product * fabric.size();
  if (fabric.rank() != 0) return absl::OkStatus();
  std::printf("%s %s, %d ranks x %d threads, %.0f tokens a step, loss %.4f, arena %.0f MiB\n",
              options.config.c_str(), options.dtype.c_str(), fabric.size(), options.threads, tokens,
              report.loss, static_cast<double>(engine->arena().size_bytes()) / (1 << 20));
  std::printf("step min %.1f ms, median %.1f ms, p99 %.1f ms; exposed communication %.1f %%\n",
              seconds.front() * 1e3, median * 1e3, p99 * 1e3,
              100 * exposed / static_cast<double>(seconds.size()) / median);
  std::printf("%.1f GFLOP/s of the model; the product alone reaches %.1f: utilisation %.1f %%\n",
              flops / seconds.front() * 1e-9, peak * 1e-9, 100 * flops / seconds.front() / peak);
  std::printf(
      "{\"tok_s\": %.1f, \"tok_s_med\": %.1f, \"step_ms_min\": %.2f, \"step_ms_median\": %.2f, "
      "\"step_ms_p99\": %.2f, \"utilisation\": %.4f, \"exposed\": %.4f}\n",
      tokens / seconds.front(), tokens / median, seconds.front() * 1e3, median * 1e3, p99 * 1e3,
      flops / seconds.front() / peak, exposed / static_cast<double>(seconds.size()) / median);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Training steps of a named model on random tokens.");
  Options options;
  app.add_option("--config", options.config, "gpt2, 10m or 10mchar")
      ->capture_default_str()
      ->check(CLI::IsMember({"gpt2", "10m", "10mchar"}));
  app.add_option("--micro-batch", options.micro_batch, "samples per micro-batch and rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  app.add_option("--accumulation", options.accumulation, "micro-batches per step")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  app.add_option("--tokens", options.tokens, "tokens per sample")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--threads", options.threads, "threads per rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--steps", options.steps, "measured steps")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  app.add_option("--warmup", options.warmup, "steps before them")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  app.add_option("--dtype", options.dtype, "f32, bf16 or f64")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16", "f64"}));
  app.add_option("--kernels", options.kernels, "cpu or reference")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "reference"}));
  app.add_option("--tensor", options.tensor, "tensor parallel size")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--pipeline", options.pipeline, "pipeline parallel size")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--schedule", options.schedule, "gpipe, 1f1b or zb-h1")->capture_default_str();
  app.add_option("--loss-tile", options.loss_tile, "rows of a tile of logits; 0: chosen")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--zero", options.zero, "ZeRO stage, 0 to 3")->capture_default_str();
  app.add_flag("--breakdown", options.breakdown, "time of each instruction of the last step");
  CLI11_PARSE(app, argc, argv);
  auto fabric = comm::ConnectMpi(&argc, &argv);
  if (!fabric.ok()) {
    std::fprintf(stderr, "%s\n", base::MessageOf(fabric.status()).c_str());
    return 1;
  }
  const absl::Status status = Run(options, **fabric);
  if (!status.ok()) {
    std::fprintf(stderr, "rank %d: %s\n", (*fabric)->rank(), base::MessageOf(status).c_str());
    comm::AbortJob(1);
  }
  return (*fabric)->Close().ok() ? 0 : 1;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) { return trireme::Main(argc, argv); }
