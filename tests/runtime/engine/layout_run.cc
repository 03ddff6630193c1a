#include "tests/runtime/engine/layout_run.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/layout/layout.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/slice.h"
#include "runtime/spec/job_spec.h"
#include "runtime/tensor/bf16.h"
#include "runtime/tensor/element.h"
#include "tests/runtime/data/random_dataset.h"
#include "tests/streams.h"

namespace trireme::engine {

namespace {

void Scatter(const Tensors& from, const std::vector<StateView>& views) {
  for (const StateView& view : views) {
    const layout::Box whole = layout::Box::Whole(view.shape);
    const std::vector<double>& source = from.at(view.name);
    for (const layout::StridedCopy& copy :
         layout::Copies(layout::Shard::Whole(whole), view.shard)) {
      for (int64_t run = 0; run < copy.count; ++run) {
        for (int64_t index = 0; index < copy.length; ++index) {
          const double value =
              source[static_cast<size_t>(copy.source_offset + run * copy.source_stride + index)];
          const int64_t to = copy.target_offset + run * copy.target_stride + index;
          tensor::SetElement(view.dtype, view.data.get(), to, value);
        }
      }
    }
  }
}

// Each after all before it; the context grows beyond the sequence length.
absl::StatusOr<std::vector<int32_t>> Draw(Engine& engine, int count) {
  std::vector<int32_t> tokens = {2};
  for (int index = 0; index < count; ++index) {
    ASSIGN_OR_RETURN(const int32_t next,
                     engine.NextToken(tokens, {.temperature = index < count / 2 ? 0.9 : 0.0,
                                               .top_k = index % 2 == 0 ? 0 : 9,
                                               .seed = 5}));
    tokens.push_back(next);
  }
  return tokens;
}

void Gather(const std::vector<StateView>& views, Tensors& into, std::mutex& mutex) {
  const std::lock_guard lock(mutex);
  for (const StateView& view : views) {
    const layout::Box whole = layout::Box::Whole(view.shape);
    std::vector<double>& target = into[view.name];
    target.resize(static_cast<size_t>(whole.elements()), std::nan(""));
    for (const layout::StridedCopy& copy :
         layout::Copies(view.shard, layout::Shard::Whole(whole))) {
      for (int64_t run = 0; run < copy.count; ++run) {
        for (int64_t index = 0; index < copy.length; ++index) {
          const int64_t from = copy.source_offset + run * copy.source_stride + index;
          target[static_cast<size_t>(copy.target_offset + run * copy.target_stride + index)] =
              tensor::ElementAt(view.dtype, view.data.get(), from);
        }
      }
    }
  }
}

int64_t ActivationsMoved(const v1::Plan& plan) {
  int64_t moved = 0;
  for (const v1::StagePlan& stage : plan.stages()) {
    for (const v1::Instruction& each : stage.step().instructions()) {
      moved += each.kind() == v1::SWAP_OUT && each.pool() == v1::ACTIVATION ? 1 : 0;
    }
  }
  return moved;
}

}  // namespace

void GatherTensors(Engine& engine, const std::string& kind, Tensors& into, std::mutex& mutex) {
  engine.OnDevice([&] { Gather(engine.state().Owned(kind), into, mutex); });
}

EngineOptions OptionsOf(const v1::JobSpec& job) {
  return {.kernels = &KernelsOf(job), .device = StrictDevice(job.runtime().asynchronous_streams())};
}

tensor::HostDeviceOptions StrictDevice(bool asynchronous) {
  return {.asynchronous = asynchronous || tests::asynchronous_streams, .strict = true};
}

const kernels::KernelRegistry& KernelsOf(const v1::JobSpec& job) {
  static const kernels::KernelRegistry reference = [] {
    kernels::KernelRegistry registry;
    kernels::RegisterReferenceKernels(registry);
    return registry;
  }();
  static const kernels::KernelRegistry fast = [] {
    kernels::KernelRegistry registry;
    kernels::RegisterCpuKernels(registry);
    kernels::RegisterReferenceKernels(registry);
    return registry;
  }();
  return job.runtime().kernels() == "reference" ? reference : fast;
}

absl::Status CheckMemory(const Engine& engine, const v1::StagePlan& stage) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const struct {
    v1::PoolPlace place;
    uint64_t planned, unit;
  } places[] = {{v1::ARENA, stage.arena_bytes(), 1},
                {v1::HOST, stage.host_bytes(), 1},
                {v1::FILE, stage.file_bytes(), page},
                {v1::SNAPSHOT, stage.snapshot_bytes(), 1}};
  for (const auto& [place, planned, unit] : places) {
    const uint64_t given = engine.arena().AllocatedBytes(place);
    if (given == (planned + unit - 1) / unit * unit) continue;
    return absl::InternalError(absl::StrCat("rank ", engine.rank(), " has taken ", given,
                                            " bytes of the place ", v1::PoolPlace_Name(place),
                                            ", the plan says ", planned));
  }
  return absl::OkStatus();
}

absl::Status RunRank(const v1::Plan& whole, comm::Fabric& fabric, const data::Dataset& dataset,
                     const LayoutRunOptions& options, LayoutResult& result, std::mutex& mutex) {
  const v1::Plan plan = options.whole_plans ? whole : plan::SliceOf(whole, fabric.rank());
  EngineOptions of_engine = OptionsOf(plan.job());
  if (options.kernels != nullptr) of_engine.kernels = options.kernels;
  of_engine.threads = options.threads;
  // In memory, where there is such: thousands of runs would wait for a disk.
  of_engine.offload_folder = options.offload_folder;
  constexpr const char* kMemory = "/dev/shm";
  if (of_engine.offload_folder.path.empty() && access(kMemory, W_OK) == 0) {
    of_engine.offload_folder.path = kMemory;
  }
  ASSIGN_OR_RETURN(auto engine, Engine::Create(plan, fabric, dataset, of_engine));
  const plan::Coordinates at = plan::CoordinatesOf(plan.mesh(), fabric.rank());
  RETURN_IF_ERROR(CheckMemory(*engine, plan.stages(static_cast<int>(at.pipeline))));
  engine->InitializeState();
  if (options.initial != nullptr) {
    engine->OnDevice([&] { Scatter(*options.initial, engine->state().Held("parameter")); });
  }
  for (int step = 0; step < options.steps; ++step) {
    ASSIGN_OR_RETURN(const StepReport report, engine->RunStep(static_cast<uint64_t>(step)));
    if (step == 0) GatherTensors(*engine, "gradient", result.gradients, mutex);
    if (engine->rank() == 0) {
      result.losses.push_back(report.loss);
      result.norms.push_back(report.gradient_norm);
      result.learning_rates.push_back(report.learning_rate);
    }
  }
  GatherTensors(*engine, "parameter", result.weights, mutex);
  double validation_loss = 0;
  if (options.evaluate) {
    ASSIGN_OR_RETURN(validation_loss, engine->Evaluate(0));
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> drawn, Draw(*engine, options.draw));
  {
    const std::lock_guard lock(mutex);
    if (!result.drawn.empty() && drawn != result.drawn) {
      return absl::InternalError("the ranks drew different tokens");
    }
    result.drawn = drawn;
    result.validation_loss = validation_loss;
  }
  return engine->agreement().AllAgree(true).status();
}

std::unique_ptr<data::Dataset> MakeRandomDataset(int64_t vocab_size, int64_t sequence_length) {
  return std::make_unique<data::RandomDataset>(
      data::RandomDatasetOptions{.vocab_size = vocab_size, .sequence_length = sequence_length});
}

absl::StatusOr<LayoutResult> RunLayout(const v1::JobSpec& job, int ranks,
                                       const data::Dataset& dataset,
                                       const LayoutRunOptions& options) {
  ASSIGN_OR_RETURN(const v1::Plan plan, plan::MakePlan(job, ranks, {}, options.snapshot_slots));
  LayoutResult result;
  result.activations_moved = ActivationsMoved(plan);
  std::mutex mutex;
  PlantMutation(options.mutation, options.mutated_bucket);
  const std::vector<absl::Status> statuses = comm::RunRanks(
      ranks,
      [&](comm::Fabric& fabric) { return RunRank(plan, fabric, dataset, options, result, mutex); },
      options.transport);
  PlantMutation(Mutation::kCount);
  for (const absl::Status& status : statuses) {
    if (!status.ok())
      return absl::InternalError(absl::StrCat("a rank failed: ", status.ToString()));
  }
  return result;
}

std::map<std::string, double> Differences(const Tensors& a, const Tensors& b, double scale,
                                          double limit) {
  std::map<std::string, double> over;
  for (const auto& [name, values] : a) {
    const auto found = b.find(name);
    double worst = 0;
    if (found == b.end() || found->second.size() != values.size()) {
      worst = INFINITY;
    } else {
      for (size_t index = 0; index < values.size(); ++index) {
        const double difference = std::abs(values[index] - found->second[index]) / scale;
        if (!(difference <= worst)) worst = difference;  // a NaN counts as worst
      }
    }
    if (!(worst <= limit)) over[name] = worst;
  }
  for (const auto& [name, values] : b) {
    if (!a.contains(name)) over[name] = INFINITY;
  }
  return over;
}

Tensors RoundedToBf16(Tensors tensors) {
  for (auto& [name, values] : tensors) {
    for (double& value : values) {
      value = static_cast<float>(tensor::BFloat16(static_cast<float>(value)));
    }
  }
  return tensors;
}

double NormOf(const Tensors& tensors) {
  double sum = 0;
  for (const auto& [name, values] : tensors) {
    for (double value : values) sum += value * value;
  }
  return std::sqrt(sum);
}

std::string UnlikeIn(const LayoutResult& result, const LayoutResult& expected) {
  std::string unlike;
  const auto compare = [&](const char* what, bool same) {
    if (!same) unlike += std::string(unlike.empty() ? "" : ", ") + what;
  };
  compare("losses", result.losses == expected.losses);
  compare("norms", result.norms == expected.norms);
  compare("weights", result.weights == expected.weights);
  compare("gradients", result.gradients == expected.gradients);
  compare("validation loss", result.validation_loss == expected.validation_loss);
  compare("tokens drawn", result.drawn == expected.drawn);
  return unlike;
}

namespace {

// A limit from here on is one of f32.
constexpr double kSinglePrecision = 1e-7;

// Of f32. A gradient's error is rounding, 2^-24, of terms as large as the gradients are at large;
// some hundred roundings lie on its way (four layers of a dozen operators, sums of 40 rows), and
// the worst of some thousand elements lies four deviations out: 4 sqrt(100) 2^-24 = 2.4e-6 of the
// scale of all. Against the smallest own scale, a tenth of that, it is 2.4e-5, and four times that
// where terms are larger than what they add up to. A gradient that is wrong is wrong by about 1.
constexpr double kLeastOwnScale = 0.1, kOwnScaleLimit = 1e-4;

double RootMeanSquare(const Tensors& tensors) {
  double elements = 0;
  for (const auto& [name, values] : tensors) elements += static_cast<double>(values.size());
  return NormOf(tensors) / std::sqrt(elements);
}

// Each gradient against its own root mean square, or `least` of that of all; `of_element` times
// the element itself is let pass beside it.
std::string OwnScaleFaultsOf(const LayoutResult& result, const LayoutResult& reference,
                             double least, double limit, double of_element = 0) {
  const double of_all = RootMeanSquare(reference.gradients);
  std::string text;
  for (const auto& [name, values] : reference.gradients) {
    const Tensors expected{{name, values}};
    const double own = RootMeanSquare(expected);
    const auto found = result.gradients.find(name);
    Tensors given = found == result.gradients.end() ? Tensors{} : Tensors{{name, found->second}};
    for (auto& [which, elements] : given) {
      for (size_t index = 0; index < std::min(elements.size(), values.size()); ++index) {
        const double let_pass = of_element * std::abs(values[index]);
        elements[index] += std::clamp(values[index] - elements[index], -let_pass, let_pass);
      }
    }
    for (const auto& [which, worst] :
         Differences(given, expected, std::max(own, least * of_all), limit)) {
      absl::StrAppend(&text, " gradient ", which, " by its own scale ", worst);
    }
  }
  return text;
}

// The steps whose reported norm is not the reference's, but for that much of it.
std::string NormFaultsOf(const LayoutResult& result, const LayoutResult& reference, double of_first,
                         double of_later) {
  std::string text;
  for (size_t step = 0; step < result.norms.size(); ++step) {
    const double expected = reference.norms[step];
    const double limit = step == 0 ? of_first : of_later;
    if (std::abs(result.norms[step] - expected) <= limit * expected) continue;
    absl::StrAppend(&text, " norm of step ", step, ": ", result.norms[step], " not ", expected);
  }
  return text;
}

}  // namespace

std::string FaultsOf(const LayoutResult& result, const LayoutResult& reference, double limit) {
  std::string text;
  for (const auto& [name, worst] :
       Differences(result.gradients, reference.gradients, NormOf(reference.gradients), limit)) {
    absl::StrAppend(&text, " gradient ", name, " ", worst);
  }
  for (const auto& [name, worst] :
       Differences(result.weights, reference.weights, NormOf(reference.weights), limit)) {
    absl::StrAppend(&text, " weight ", name, " ", worst);
  }
  for (size_t step = 0; step < result.losses.size(); ++step) {
    if (!(std::abs(result.losses[step] - reference.losses[step]) < 10 * limit)) {
      absl::StrAppend(&text, " loss of step ", step, ": ", result.losses[step], " not ",
                      reference.losses[step]);
    }
  }
  if (!(std::abs(result.validation_loss - reference.validation_loss) < 10 * limit)) {
    absl::StrAppend(&text, " validation loss ", result.validation_loss);
  }
  if (result.drawn != reference.drawn) {
    absl::StrAppend(&text, " tokens drawn: ", absl::StrJoin(result.drawn, ","), " not ",
                    absl::StrJoin(reference.drawn, ","));
  }
  if (limit >= kSinglePrecision) {
    text += OwnScaleFaultsOf(result, reference, kLeastOwnScale, kOwnScaleLimit);
  }
  return text + NormFaultsOf(result, reference, 10 * limit, 10 * limit);
}

Bf16Gates GatesOfBf16(int64_t layers, int64_t tensor) {
  constexpr double kUnit = 0x1p-8;
  constexpr double kDeviations = 5;
  constexpr double kRows = 40;
  const auto forward = static_cast<double>((10 + 2 * tensor) * layers + 4);
  const double deviation = kUnit * std::sqrt(2 * forward + static_cast<double>(layers));
  return {.gradient = kDeviations * deviation,
          .gradient_rms = 2 * deviation,
          .update = 2 * deviation,
          .loss = kUnit * std::sqrt(forward),
          .norm = kDeviations * deviation / std::sqrt(kRows)};
}

namespace {

Tensors Minus(Tensors from, const Tensors& what) {
  for (auto& [name, values] : from) {
    const std::vector<double>& other = what.at(name);
    for (size_t index = 0; index < values.size(); ++index) values[index] -= other[index];
  }
  return from;
}

std::map<std::string, double> RootMeanSquares(const Tensors& tensors) {
  std::map<std::string, double> of;
  for (const auto& each : tensors) of[each.first] = RootMeanSquare({each});
  return of;
}

}  // namespace

std::string FaultsOfBf16(const LayoutResult& result, const LayoutResult& reference,
                         const Tensors& initial, const Bf16Gates& gates) {
  std::string text = OwnScaleFaultsOf(result, reference, 1, gates.gradient, gates.of_element);
  for (const auto& [name, apart] : RootMeanSquares(Minus(result.gradients, reference.gradients))) {
    const double own = RootMeanSquare({{name, reference.gradients.at(name)}});
    if (apart <= gates.gradient_rms * own) continue;
    absl::StrAppend(&text, " gradient ", name, " apart by ", apart, ", its own scale is ", own);
  }
  for (const auto& [name, apart] : RootMeanSquares(Minus(result.weights, reference.weights))) {
    const double moved =
        RootMeanSquare(Minus({{name, reference.weights.at(name)}}, {{name, initial.at(name)}}));
    if (apart <= gates.update * moved) continue;
    absl::StrAppend(&text, " weight ", name, " apart by ", apart, ", moved by ", moved);
  }
  for (size_t step = 0; step < result.losses.size(); ++step) {
    if (std::abs(result.losses[step] - reference.losses[step]) <= gates.loss) continue;
    absl::StrAppend(&text, " loss of step ", step, ": ", result.losses[step], " not ",
                    reference.losses[step]);
  }
  if (!(std::abs(result.validation_loss - reference.validation_loss) <= gates.loss)) {
    absl::StrAppend(&text, " validation loss ", result.validation_loss, " not ",
                    reference.validation_loss);
  }
  return text + NormFaultsOf(result, reference, gates.norm, gates.gradient_rms);
}

std::string FaultsOfTransfer(const LayoutResult& result, const LayoutResult& reference,
                             const Tensors& initial) {
  const double of_all = RootMeanSquare(reference.gradients);
  double squares = 0, along = 0, variance = 0;
  std::string text;
  for (const auto& [name, values] : reference.gradients) {
    const double scale = std::max(of_all, RootMeanSquare({{name, values}}));
    const std::vector<double>& got = result.gradients.at(name);
    double worst = 0;
    for (size_t index = 0; index < values.size(); ++index) {
      const double value = values[index], error = got[index] - value;
      const double deviation = kTransferDeviation * std::max(scale, std::abs(value));
      if (!(std::abs(error) <= worst * deviation)) worst = std::abs(error) / deviation;
      squares += value * value;
      along += error * value;
      variance += deviation * deviation * value * value;
    }
    if (!(worst <= 5)) absl::StrAppend(&text, " gradient ", name, " by deviations ", worst);
  }
  if (!(std::abs(along) <= 5 * std::sqrt(variance))) {
    absl::StrAppend(&text, " gradients longer by ", along / squares, ", allowed are ",
                    5 * std::sqrt(variance) / squares);
  }
  const double moved = RootMeanSquare(Minus(reference.weights, initial));
  const double apart = RootMeanSquare(Minus(result.weights, reference.weights));
  if (!(apart <= 2 * kTransferDeviation * moved)) {
    absl::StrAppend(&text, " weights apart by ", apart, ", moved by ", moved);
  }
  for (size_t step = 0; step < result.losses.size(); ++step) {
    const double difference = std::abs(result.losses[step] - reference.losses[step]);
    const double gone = std::abs(reference.losses[step] - reference.losses[0]);
    if (difference <= 1e-3 + 2 * kTransferDeviation * gone) continue;
    absl::StrAppend(&text, " loss of step ", step, " apart by ", difference, ", moved by ", gone);
  }
  return text + NormFaultsOf(result, reference, 2 * kTransferDeviation, 2 * kTransferDeviation);
}

v1::JobSpec TinyJob(const TinyJobOptions& options) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  const bool gpt2 = options.family == "gpt2";
  config.set_model_type(options.family);
  config.set_num_hidden_layers(options.layers);
  // Widths that no tensor size divides: uneven heads, feed-forward columns and vocabulary.
  config.set_num_attention_heads(gpt2 ? 9 : 10);
  config.set_num_key_value_heads(gpt2 ? 9 : 5);
  config.set_head_dim(4);
  config.set_hidden_size(gpt2 ? 36 : 20);
  config.set_intermediate_size(gpt2 ? 22 : 19);
  config.set_vocab_size(29);
  config.set_max_position_embeddings(7);
  config.set_initializer_range(0.3);  // large enough that every operator is far from linear
  config.set_tie_word_embeddings(gpt2 && options.tie);
  config.set_bias(gpt2 && options.bias);
  if (gpt2) {
    config.set_embd_pdrop(options.dropout);
    config.set_attn_pdrop(options.dropout);
    config.set_resid_pdrop(options.dropout);
  }
  job.mutable_data()->set_sequence_length(5);
  job.mutable_training()->set_global_batch_size(8);
  job.mutable_training()->set_micro_batch_size(2);
  job.mutable_training()->set_dtype(options.dtype);
  job.mutable_training()->set_gradient_transfer(options.gradient_transfer);
  job.mutable_training()->set_steps(10);
  v1::OptimizerSpec& optimizer = *job.mutable_optimizer();
  optimizer.set_learning_rate(1e-2);
  optimizer.set_warmup_steps(1);
  optimizer.set_weight_decay(0.1);
  optimizer.set_gradient_clip_norm(0.5);
  // The update divides by |gradient| + epsilon: a tiny epsilon would turn rounding noise of
  // gradients that are zero in exact arithmetic (a key's bias) into full steps.
  optimizer.set_epsilon(1e-3);
  job.mutable_runtime()->set_kernels(options.dtype == "f64" ? "reference" : "cpu");
  // In every step, so that each run here also shows that sound replicas are equal to the bit.
  job.mutable_runtime()->set_replica_check_steps(1);
  job.mutable_parallelism()->set_bucket_bytes(4096);
  if (!options.compression.empty()) {
    job.mutable_compression()->mutable_data_parallel()->set_mode(options.compression);
    job.mutable_compression()->mutable_data_parallel()->set_min_bytes(0);
    job.mutable_compression()->mutable_pipeline()->set_mode(options.compression);
    job.mutable_compression()->mutable_pipeline()->set_min_bytes(0);
  }
  spec::ApplyDefaults(job);
  return job;
}

std::string Layout::Name() const {
  return absl::StrCat("dp", data, " tp", tensor, sequence_parallel ? " sp" : "", " pp", pipeline,
                      " ", schedule, " zero", zero, " recompute ", recompute, " offload ",
                      offload_state, " ", offload_activations, " micro-batch ", micro_batch,
                      " loss tile ", loss_tile);
}

v1::JobSpec JobFor(const Layout& layout, const TinyJobOptions& options) {
  v1::JobSpec job = TinyJob(options);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_data_parallel_size(layout.data);
  parallelism.set_tensor_parallel_size(layout.tensor);
  parallelism.set_pipeline_parallel_size(layout.pipeline);
  parallelism.set_sequence_parallel(layout.sequence_parallel);
  parallelism.set_schedule(layout.schedule);
  parallelism.set_virtual_stages(layout.schedule == "interleaved" ? 2 : 1);
  parallelism.set_zero_stage(layout.zero);
  parallelism.add_recompute(layout.recompute);
  job.mutable_training()->set_micro_batch_size(layout.micro_batch);
  job.mutable_training()->set_loss_tile_rows(layout.loss_tile);
  v1::OffloadSpec& offload = *job.mutable_offload();
  offload.set_optimizer_state(layout.offload_state);
  offload.set_activations(layout.offload_activations);
  offload.set_piece_bytes(8192);  // several of the larger buckets
  return job;
}

}  // namespace trireme::engine
