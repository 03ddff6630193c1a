// Training steps of a named model on random tokens: tokens per second beside the roofline
// (runtime/benchmark/roofline.h) at the speeds of product and triad measured in the same run. One
// process, or a rank under mpirun (data parallel unless told otherwise). Last line JSON.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/benchmark/limits.h"
#include "runtime/benchmark/roofline.h"
#include "runtime/comm/mpi/mpi_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/model/model.h"
#include "runtime/plan/lowered_stage.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"
#include "tests/bench/step_breakdown.h"
#include "tests/runtime/data/random_dataset.h"

namespace trireme {
namespace {

struct Options {
  std::string config = "gpt2";
  int64_t micro_batch = 4, tokens = 256, accumulation = 1;
  int threads = 2, steps = 8, warmup = 2;
  int64_t tensor = 1, pipeline = 1, zero = 0, loss_tile = 0;
  std::string dtype = "f32", kernels = "cpu", schedule = "1f1b";
  bool breakdown = false, snapshots = false;
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
  job.mutable_snapshots()->set_every_step(options.snapshots);
  parallelism.set_schedule(options.schedule);
  job.mutable_runtime()->set_kernels(options.dtype == "f64" ? "reference" : options.kernels);
  spec::ApplyDefaults(job);
  return job;
}

// Of one step on this rank: forward, backward, optimizer. What overlaps, waits or checks is not in
// it.
benchmark::StepWork WorkOfRank(const v1::Plan& plan, const plan::LoweredStage& stage,
                               const Options& options) {
  const std::vector<graph::StageOps>& ops = stage.ops.front();
  benchmark::StepWork work;
  for (const graph::StageOps& each : ops) {
    const benchmark::StepWork once = benchmark::WorkOf(each);
    work.flops += once.flops * static_cast<double>(options.accumulation);
    work.bytes += once.bytes * static_cast<double>(options.accumulation);
  }
  const bool sharded = plan::IsSharded(plan, v1::MOMENT1);
  const double share = sharded ? 1.0 / static_cast<double>(plan.mesh().data()) : 1.0;
  work.bytes += benchmark::AdamWBytes(plan::ComputeDType(plan.job())) * share *
                static_cast<double>(stage.state.elements);
  return work;
}

struct Results {
  std::vector<double> seconds;  // of the steps, ascending
  double exposed_s = 0;         // of all of them
  engine::StepReport last;
  double arena_bytes = 0;
  double peak_bytes = 0;  // of the process, before anything is measured beside the step
  MachineSpeed speed;
  benchmark::StepWork work;
};

// The most that this process has ever had in memory; 0 where the system does not say.
double PeakBytes() {
  uint64_t peak_kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::sscanf(line.c_str(), "VmHWM: %lu kB", &peak_kib);
  }
  return static_cast<double>(peak_kib) * 1024;
}

// Best of before and after the steps: the machine may have been faster meanwhile.
void MeasureSpeed(benchmark::Limits& limits, tensor::DType dtype, MachineSpeed& speed) {
  for (int i = 0; i < 3; ++i) {
    speed.product_rate = std::max(speed.product_rate, limits.ProductRate(dtype));
    speed.memory_rate = std::max(speed.memory_rate, limits.MemoryRate());
  }
}

absl::StatusOr<Results> Measure(const Options& options, const v1::Plan& plan,
                                comm::Fabric& fabric) {
  const v1::JobSpec& job = plan.job();
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
  ASSIGN_OR_RETURN(const auto graph, model::BuildModel(job.model().config()));
  const plan::LoweredStage stage =
      plan::LowerForRank(plan, graph, plan::CoordinatesOf(plan.mesh(), fabric.rank()));
  // There is no f64 product to compare with.
  const tensor::DType dtype = options.dtype == "bf16" ? tensor::DType::kBf16 : tensor::DType::kF32;
  Results results;
  results.work = WorkOfRank(plan, stage, options);
  results.arena_bytes = static_cast<double>(engine->arena().AllocatedBytes(v1::ARENA));
  // What the limits are measured in is none of the step's.
  ASSIGN_OR_RETURN(results.last, engine->RunStep(0));
  results.peak_bytes = PeakBytes();
  ASSIGN_OR_RETURN(const auto limits,
                   benchmark::Limits::Create(options.threads, benchmark::Stopwatch()));
  MeasureSpeed(*limits, dtype, results.speed);
  for (int step = 1; step < std::max(1, options.warmup) + options.steps; ++step) {
    ASSIGN_OR_RETURN(results.last, engine->RunStep(static_cast<uint64_t>(step)));
    if (step < options.warmup) continue;
    results.seconds.push_back(results.last.duration_s);
    ASSIGN_OR_RETURN(const engine::ExposureReport exposure, engine->MeasureExposure());
    results.exposed_s += exposure.exposed.mean_s;
  }
  std::sort(results.seconds.begin(), results.seconds.end());
  MeasureSpeed(*limits, dtype, results.speed);
  if (options.breakdown && fabric.rank() == 0) {
    StepBreakdown(engine->last_trace(), stage.ops.front()).Print(results.speed);
  }
  return results;
}

void Print(const Options& options, int ranks, const Results& results, double flops) {
  const std::vector<double>& seconds = results.seconds;
  const double tokens = static_cast<double>(results.last.tokens);
  const double best = seconds.front(), median = seconds[seconds.size() / 2];
  const double p99 = seconds[std::min(seconds.size() - 1, seconds.size() * 99 / 100)];
  const double exposed = results.exposed_s / static_cast<double>(seconds.size()) / median;
  const double least = results.speed.Seconds(results.work);
  std::printf("%s %s, %d ranks x %d threads, %.0f tokens a step, loss %.4f\n",
              options.config.c_str(), options.dtype.c_str(), ranks, options.threads, tokens,
              results.last.loss);
  std::printf("rank 0: arena %.3f GB, peak of the process after a step %.3f GB\n",
              results.arena_bytes * 1e-9, results.peak_bytes * 1e-9);
  std::printf("step min %.1f ms, median %.1f ms, p99 %.1f ms; exposed communication %.1f %%\n",
              best * 1e3, median * 1e3, p99 * 1e3, 100 * exposed);
  std::printf("%.1f GFLOP/s of the model on all ranks\n", flops / best * 1e-9);
  std::printf(
      "roofline of rank 0: %.0f GFLOP at %.0f GFLOP/s (square product), %.2f GB at %.1f GB/s "
      "(triad): %.1f ms; reached %.3f of it\n",
      results.work.flops * 1e-9, results.speed.product_rate * 1e-9, results.work.bytes * 1e-9,
      results.speed.memory_rate * 1e-9, least * 1e3, least / best);
  std::printf(
      "{\"tok_s\": %.1f, \"tok_s_med\": %.1f, \"step_ms_min\": %.2f, \"step_ms_median\": %.2f, "
      "\"step_ms_p99\": %.2f, \"roofline_ms\": %.2f, \"roofline_ratio\": %.4f, "
      "\"exposed\": %.4f, "
      "\"arena_bytes\": %.0f, \"peak_bytes\": %.0f}\n",
      tokens / best, tokens / median, best * 1e3, median * 1e3, p99 * 1e3, least * 1e3,
      least / best, exposed, results.arena_bytes, results.peak_bytes);
}

absl::Status Run(const Options& options, comm::Fabric& fabric) {
  omp_set_num_threads(options.threads);
  ASSIGN_OR_RETURN(const v1::JobSpec job, JobFor(options, fabric.size()));
  ASSIGN_OR_RETURN(const v1::Plan plan, plan::MakePlan(job, fabric.size()));
  ASSIGN_OR_RETURN(const Results results, Measure(options, plan, fabric));
  if (fabric.rank() != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto graph, model::BuildModel(job.model().config()));
  Print(options, fabric.size(), results,
        model::TrainingFlopsPerToken(graph, job.model().config(), options.tokens) *
            static_cast<double>(results.last.tokens));
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
  app.add_flag("--snapshots", options.snapshots,
               "each step leaves its state in a slot, with its sums (snapshots.every_step)");
  app.add_flag("--breakdown", options.breakdown, "the last step by instructions and operators");
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
