// The bubble of a pipeline schedule as the engine runs it, beside the simulator's: ranks are
// threads, and each operator sleeps the time that it is given instead of computing, so that eight
// ranks need no more than one core. What is measured is the order of instructions, the transfers
// and the waits of the real engine. Last line JSON.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/kernels/kernel.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/schedule.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/data/random_dataset.h"

namespace trireme {
namespace {

struct Options {
  std::string schedule = "zb-h1";
  uint32_t ranks = 8, micro_batches = 16;
  int steps = 3;
  plan::SimulatedCosts ms{.forward = 20, .input_grad = 20, .weight_grad = 20, .latency = 0};
};

constexpr int64_t kVocabulary = 31, kTokens = 8;
// Of a layer of GPT-2: each sleeps its share.
constexpr int kProductsOfLayer = 4;

// A layer for each rank, so small that its arithmetic takes no time.
v1::JobSpec JobOf(const Options& options) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_num_hidden_layers(options.ranks);
  config.set_num_attention_heads(2);
  config.set_hidden_size(16);
  config.set_vocab_size(kVocabulary);
  config.set_max_position_embeddings(kTokens);
  job.mutable_training()->set_global_batch_size(options.micro_batches);
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_training()->set_dtype("f32");
  job.mutable_data()->set_sequence_length(kTokens);
  job.mutable_parallelism()->set_pipeline_parallel_size(options.ranks);
  job.mutable_parallelism()->set_schedule(options.schedule);
  job.mutable_runtime()->set_kernels("reference");
  spec::ApplyDefaults(job);
  return job;
}

class SleepingKernel final : public kernels::Kernel {
 public:
  SleepingKernel(std::unique_ptr<kernels::Kernel> inner, double ms)
      : inner_(std::move(inner)),
        sleep_(std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::duration<double, std::milli>(ms))) {}
  void Run(const graph::OpCall& call) override {
    const auto end = std::chrono::steady_clock::now() + sleep_;
    inner_->Run(call);
    std::this_thread::sleep_until(end);
  }
  size_t ScratchBytes() const override { return inner_->ScratchBytes(); }

 private:
  std::unique_ptr<kernels::Kernel> inner_;
  std::chrono::nanoseconds sleep_;
};

// Products sleep; the rest is done at once. `plain` must outlive what is prepared.
kernels::KernelRegistry SleepingKernels(const plan::SimulatedCosts& ms,
                                        const kernels::KernelRegistry& plain) {
  kernels::KernelRegistry registry;
  for (const auto& [phase, phase_ms] : {std::pair(graph::Phase::kForward, ms.forward),
                                        std::pair(graph::Phase::kInputGrad, ms.input_grad),
                                        std::pair(graph::Phase::kWeightGrad, ms.weight_grad)}) {
    registry.Register(
        graph::OpKind::kLinear, phase, tensor::DType::kF32, "sleeping",
        [&plain, ms = phase_ms / kProductsOfLayer](
            const graph::OpSpec& spec,
            const kernels::PrepareOptions& options) -> std::unique_ptr<kernels::Kernel> {
          auto kernel = plain.Prepare(spec, options);
          if (!kernel.ok()) return nullptr;
          return std::make_unique<SleepingKernel>(*std::move(kernel), ms);
        });
  }
  kernels::RegisterReferenceKernels(registry);
  return registry;
}

struct Results {
  double step_s = 1e30;  // the best
  double busy_s = 0;     // of the busiest rank in that step
};

absl::StatusOr<Results> Measure(const Options& options) {
  ASSIGN_OR_RETURN(const v1::Plan plan,
                   plan::MakePlan(JobOf(options), static_cast<int>(options.ranks)));
  kernels::KernelRegistry plain;
  kernels::RegisterReferenceKernels(plain);
  const kernels::KernelRegistry registry = SleepingKernels(options.ms, plain);
  const data::RandomDataset dataset({.vocab_size = kVocabulary,
                                     .sequence_length = kTokens,
                                     .samples = 1 << 16,
                                     .ignored_targets = false});
  std::mutex mutex;
  const size_t steps = static_cast<size_t>(options.steps);
  std::vector<Results> of_steps(steps, Results{.step_s = 0, .busy_s = 0});
  const auto statuses =
      comm::RunRanks(static_cast<int>(options.ranks), [&](comm::Fabric& fabric) -> absl::Status {
        ASSIGN_OR_RETURN(auto engine, engine::Engine::Create(plan, fabric, dataset,
                                                             {.kernels = &registry, .threads = 1}));
        engine->InitializeState();
        RETURN_IF_ERROR(engine->RunStep(0).status());
        for (size_t step = 0; step < steps; ++step) {
          ASSIGN_OR_RETURN(const engine::StepReport report, engine->RunStep(step + 1));
          const std::lock_guard lock(mutex);
          Results& results = of_steps[step];
          results.step_s = std::max(results.step_s, report.duration_s);
          results.busy_s = std::max(results.busy_s, 1e-3 * engine->last_trace().Sums().compute_ms);
        }
        return absl::OkStatus();
      });
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return *std::min_element(of_steps.begin(), of_steps.end(),
                           [](const auto& a, const auto& b) { return a.step_s < b.step_s; });
}

absl::Status Run(const Options& options) {
  const plan::ScheduleOptions shape{.ranks = options.ranks, .micro_batches = options.micro_batches};
  ASSIGN_OR_RETURN(const auto order, plan::GenerateSchedule(options.schedule, shape));
  ASSIGN_OR_RETURN(const plan::Simulation simulation, plan::Simulate(order, shape, options.ms));
  ASSIGN_OR_RETURN(const Results results, Measure(options));
  const double bubble = results.step_s / results.busy_s - 1;
  std::printf("%s, %u ranks, %u micro-batches, F %.1f I %.1f W %.1f ms\n", options.schedule.c_str(),
              options.ranks, options.micro_batches, options.ms.forward, options.ms.input_grad,
              options.ms.weight_grad);
  std::printf("step %.1f ms, busiest rank %.1f ms; bubble %.4f, in theory %.4f: ratio %.3f\n",
              results.step_s * 1e3, results.busy_s * 1e3, bubble, simulation.bubble,
              bubble / simulation.bubble);
  std::printf(
      "{\"schedule\": \"%s\", \"ranks\": %u, \"micro_batches\": %u, \"step_ms\": %.2f, "
      "\"busy_ms\": %.2f, \"bubble\": %.5f, \"theory\": %.5f}\n",
      options.schedule.c_str(), options.ranks, options.micro_batches, results.step_s * 1e3,
      results.busy_s * 1e3, bubble, simulation.bubble);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("The bubble of a pipeline schedule as the engine runs it, with sleeping operators.");
  Options options;
  app.add_option("--schedule", options.schedule, "gpipe, 1f1b or zb-h1")->capture_default_str();
  app.add_option("--ranks", options.ranks, "pipeline ranks")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  app.add_option("--micro-batches", options.micro_batches, "of a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--steps", options.steps, "measured steps; the best counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  for (const auto& [flag, ms] : {std::pair("--forward-ms", &options.ms.forward),
                                 std::pair("--input-grad-ms", &options.ms.input_grad),
                                 std::pair("--weight-grad-ms", &options.ms.weight_grad)}) {
    app.add_option(flag, *ms, "of a micro-batch on a rank")
        ->capture_default_str()
        ->check(CLI::Range(0.1, 1000.0));
  }
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(options);
  if (!status.ok()) std::fprintf(stderr, "bench_schedule: %s\n", base::MessageOf(status).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) { return trireme::Main(argc, argv); }
