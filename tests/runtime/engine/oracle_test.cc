// PyTorch's word (tests/oracle): logits and gradients of the first batch, and losses, norms,
// learning rates and the weights of ten AdamW steps of five tiny models, on one rank and on layouts
// that cut everything.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/safetensors/safetensors.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

constexpr int64_t kSamples = 3, kSteps = 10;
constexpr uint64_t kSeed = 20;  // of the masks of dropout

// One folder of tests/oracle/data; the widths of the tails leave every vector loop one.
struct Fixture {
  const char* name;
  int64_t tokens, vocabulary;
  double epsilon;  // of AdamW
  bool narrow;     // PyTorch's own f32 run is there, too
};
constexpr Fixture kFixtures[] = {{"gpt2_bias", 8, 29, 1e-8, true},
                                 {"gpt2_no_bias", 8, 29, 1e-8, true},
                                 {"llama_grouped", 8, 29, 1e-8, true},
                                 {"gpt2_tails", 37, 53, 1e-4, false},
                                 {"llama_tails", 35, 61, 1e-4, false}};

std::string FolderOf(const std::string& name) {
  return absl::StrCat(TRIREME_SOURCE_DIR, "/tests/oracle/data/", name);
}

std::vector<double> Values(const safetensors::File& file, const safetensors::TensorInfo& tensor) {
  const std::span<const std::byte> bytes = file.Data(tensor);
  const bool wide = tensor.element == safetensors::Element::kF64;
  std::vector<double> values(bytes.size() / (wide ? 8 : 4));
  for (size_t index = 0; index < values.size(); ++index) {
    if (wide) {
      std::memcpy(&values[index], bytes.data() + 8 * index, 8);
    } else {
      float value = 0;
      std::memcpy(&value, bytes.data() + 4 * index, 4);
      values[index] = value;
    }
  }
  return values;
}

// The stored batches, sample by sample.
class StoredDataset : public data::Dataset {
 public:
  StoredDataset(const safetensors::File& file, const Fixture& fixture)
      : vocabulary_(MakeRandomDataset(fixture.vocabulary, fixture.tokens)),
        length_(fixture.tokens),
        tokens_(Read(file, "tokens")),
        targets_(Read(file, "targets")) {}
  const data::Tokenizer& tokenizer() const override { return vocabulary_->tokenizer(); }
  int64_t samples(data::Split) const override { return kSamples * kSteps; }
  int64_t sequence_length() const override { return length_; }
  int64_t tokens(data::Split) const override { return kSamples * kSteps * length_; }
  void Read(data::Split, int64_t, std::span<int32_t>) const override {}
  void Fill(data::Split, int64_t sample, std::span<int32_t> tokens,
            std::span<int32_t> targets) const override {
    std::copy_n(tokens_.begin() + sample * length_, length_, tokens.begin());
    std::copy_n(targets_.begin() + sample * length_, length_, targets.begin());
  }

 private:
  static std::vector<int32_t> Read(const safetensors::File& file, const char* name) {
    const std::span<const std::byte> bytes = *file.Data(name);
    std::vector<int32_t> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::unique_ptr<data::Dataset> vocabulary_;
  int64_t length_;
  std::vector<int32_t> tokens_, targets_;
};

struct OracleLayout {
  int64_t data, tensor, pipeline;
  bool sequence_parallel;
  const char* schedule;
  int64_t zero, micro_batch;
};

// The kernels of a job, and what its heads gave in step 0: [kSamples][tokens][vocabulary].
class HeardLogits {
 public:
  HeardLogits(const kernels::KernelRegistry& kernels, tensor::DType dtype, const Fixture& fixture)
      : fixture_(fixture),
        values_(static_cast<size_t>(kSamples * fixture.tokens * fixture.vocabulary), std::nan("")) {
    Wrap(kernels, dtype);
  }
  const kernels::KernelRegistry& registry() const { return registry_; }
  const std::vector<double>& values() const { return values_; }

 private:
  class Listener;
  void Wrap(const kernels::KernelRegistry& kernels, tensor::DType dtype);
  template <typename T>
  void Hear(const graph::OpSpec& spec, const graph::OpCall& call);

  const Fixture& fixture_;
  kernels::KernelRegistry registry_;
  std::mutex mutex_;
  std::vector<double> values_;
};

class HeardLogits::Listener : public kernels::Kernel {
 public:
  Listener(HeardLogits& owner, const graph::OpSpec& spec, std::unique_ptr<kernels::Kernel> inner)
      : owner_(owner), spec_(spec), inner_(std::move(inner)) {}
  void Run(const graph::OpCall& call) override {
    inner_->Run(call);
    if (spec_.dtype == tensor::DType::kF64) {
      owner_.Hear<double>(spec_, call);
    } else {
      owner_.Hear<float>(spec_, call);
    }
  }
  size_t ScratchBytes() const override { return inner_->ScratchBytes(); }

 private:
  HeardLogits& owner_;
  graph::OpSpec spec_;
  std::unique_ptr<kernels::Kernel> inner_;
};

template <typename T>
void HeardLogits::Hear(const graph::OpSpec& spec, const graph::OpCall& call) {
  if (call.step != 0 || !call.training) return;
  const std::lock_guard lock(mutex_);
  for (int64_t row = 0; row < spec.rows; ++row) {
    const int64_t at = call.first_sample * fixture_.tokens + spec.row_begin + row;
    if (at >= kSamples * fixture_.tokens) break;  // a replica with fewer samples pads
    for (int64_t column = 0; column < spec.cols; ++column) {
      const auto index = static_cast<size_t>(at * fixture_.vocabulary + spec.vocab_begin + column);
      values_[index] = call.In<T>(graph::kY)[row * spec.y_ld + column];
    }
  }
}

void HeardLogits::Wrap(const kernels::KernelRegistry& kernels, tensor::DType dtype) {
  using graph::OpKind;
  using graph::Phase;
  for (int kind = 0; kind <= static_cast<int>(OpKind::kLossCombine); ++kind) {
    for (const Phase phase : {Phase::kForward, Phase::kInputGrad, Phase::kWeightGrad}) {
      const bool heard =
          OpKind{static_cast<uint8_t>(kind)} == OpKind::kLmHeadLoss && phase == Phase::kForward;
      registry_.Register(
          OpKind{static_cast<uint8_t>(kind)}, phase, dtype, "of the job",
          [&kernels, heard, this](const graph::OpSpec& spec, const kernels::PrepareOptions& options)
              -> std::unique_ptr<kernels::Kernel> {
            auto kernel = kernels.Prepare(spec, options);
            if (!kernel.ok()) return nullptr;
            if (!heard) return std::move(*kernel);
            return std::make_unique<Listener>(*this, spec, std::move(*kernel));
          });
    }
  }
}

v1::JobSpec OracleJob(const Fixture& fixture, const std::string& dtype,
                      const OracleLayout& layout) {
  v1::JobSpec job;
  auto config = spec::ReadModelConfig(FolderOf(fixture.name) + "/config.json");
  REQUIRE(config.ok());
  *job.mutable_model()->mutable_config() = *config;
  job.mutable_data()->set_sequence_length(fixture.tokens);
  job.mutable_training()->set_steps(kSteps);
  job.mutable_training()->set_global_batch_size(kSamples);
  job.mutable_training()->set_micro_batch_size(layout.micro_batch);
  // Of layouts with several ranks, some cut the rows of a micro-batch unevenly.
  job.mutable_training()->set_loss_tile_rows(layout.tensor * layout.pipeline > 1 ? 3 : 0);
  job.mutable_training()->set_dtype(dtype);
  job.set_seed(kSeed);
  v1::OptimizerSpec& optimizer = *job.mutable_optimizer();
  optimizer.set_learning_rate(0.01);
  optimizer.set_min_learning_rate(0.001);
  optimizer.set_warmup_steps(3);
  optimizer.set_decay_steps(kSteps);
  optimizer.set_epsilon(fixture.epsilon);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_tensor_parallel_size(layout.tensor);
  parallelism.set_pipeline_parallel_size(layout.pipeline);
  parallelism.set_sequence_parallel(layout.sequence_parallel);
  parallelism.set_schedule(layout.schedule);
  parallelism.set_zero_stage(layout.zero);
  job.mutable_runtime()->set_kernels(dtype == "f64" ? "reference" : "cpu");
  spec::ApplyDefaults(job);
  return job;
}

// What PyTorch states, by the file's names.
Tensors Stated(const Fixture& fixture, const std::string& file) {
  const auto opened = safetensors::File::Open(FolderOf(fixture.name) + "/" + file + ".safetensors");
  INFO(fixture.name << " " << file << " " << opened.status());
  REQUIRE(opened.ok());
  Tensors values;
  for (const safetensors::TensorInfo& tensor : opened->header().tensors) {
    values[tensor.name] = Values(*opened, tensor);
  }
  return values;
}

// Those that begin so, without it.
Tensors Part(const Tensors& stated, const std::string& prefix) {
  Tensors part;
  for (const auto& [name, values] : stated) {
    if (name.starts_with(prefix)) part[name.substr(prefix.size())] = values;
  }
  return part;
}

void CheckSame(const char* what, const Tensors& actual, const Tensors& expected, double scale,
               double limit) {
  const auto over = Differences(actual, expected, scale, limit);
  for (const auto& [parameter, worst] : over)
    UNSCOPED_INFO(what << " " << parameter << " " << worst);
  CHECK(over.empty());
}

void CheckSame(const char* what, const std::vector<double>& actual,
               const std::vector<double>& expected, double relative) {
  INFO(what);
  REQUIRE(actual.size() == expected.size());
  for (size_t index = 0; index < actual.size(); ++index) {
    INFO("of step " << index);
    CHECK(actual[index] == Approx(expected[index]).epsilon(relative).margin(0));
  }
}

// Each tensor of an f32 run lies as near to PyTorch's f64 one as PyTorch's own f32 run does: both
// differ from it by the rounding of the same sums in different orders, so that their greatest
// differences are of one size. Eight times: so few elements are no measure of a distribution. And
// 16 roundings of the greatest value, where PyTorch's happen to cancel.
void CheckSpread(const char* what, const Tensors& actual, const Tensors& wide,
                 const Tensors& spread) {
  for (const auto& [name, values] : wide) {
    double greatest = 0;
    for (const double value : values) greatest = std::max(greatest, std::abs(value));
    const double bound = 8 * spread.at(name)[0] + 16 * 0x1p-24 * greatest;
    INFO(what << " " << name << ", PyTorch's f32 differs by " << spread.at(name)[0]);
    const auto over = Differences({{name, actual.at(name)}}, {{name, values}}, bound, 1);
    INFO("this by " << (over.empty() ? 0 : over.at(name) * bound) << ", bound " << bound);
    CHECK(over.empty());
  }
}

struct OracleRun {
  LayoutResult result;
  std::vector<double> logits;
};

OracleRun RunOracle(const Fixture& fixture, const std::string& dtype, const OracleLayout& layout) {
  const auto batches = safetensors::File::Open(FolderOf(fixture.name) + "/batches.safetensors");
  REQUIRE(batches.ok());
  const Tensors initial = Stated(fixture, "model");
  const StoredDataset dataset(*batches, fixture);
  const v1::JobSpec job = OracleJob(fixture, dtype, layout);
  HeardLogits heard(KernelsOf(job), dtype == "f64" ? tensor::DType::kF64 : tensor::DType::kF32,
                    fixture);
  const int ranks = static_cast<int>(layout.data * layout.tensor * layout.pipeline);
  auto result = RunLayout(job, ranks, dataset,
                          {.steps = kSteps, .initial = &initial, .kernels = &heard.registry()});
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  return {std::move(*result), heard.values()};
}

// f64: gradients and logits by rounding alone, sums of at most some thousand terms. Ten updates
// divide by |g| + epsilon and so blow the gradients' rounding (1e-17) up by at most 1/epsilon = 1e8
// before the rate of 0.01: some 1e-11 a step, of weights of about 0.2.
void CompareF64(const Fixture& fixture, const OracleLayout& layout) {
  INFO(fixture.name << " f64 dp" << layout.data << " tp" << layout.tensor << " pp"
                    << layout.pipeline);
  const OracleRun run = RunOracle(fixture, "f64", layout);
  const Tensors wide = Stated(fixture, "oracle_f64");
  const Tensors gradients = Part(wide, "grad.");
  CheckSame("gradient", run.result.gradients, gradients, NormOf(gradients), 1e-14);
  CheckSame("logits", {{"logits", run.logits}}, {{"logits", wide.at("logits")}}, 1, 1e-13);
  CheckSame("weight", run.result.weights, Part(wide, "final."), 1, 1e-10);
  CheckSame("loss", run.result.losses, wide.at("adamw.losses"), 1e-11);
  CheckSame("norm", run.result.norms, wide.at("adamw.gradient_norms"), 1e-10);
  CheckSame("learning rate", run.result.learning_rates, wide.at("adamw.learning_rates"), 1e-15);
}

void CompareF32(const Fixture& fixture, const OracleLayout& layout) {
  INFO(fixture.name << " f32 dp" << layout.data << " tp" << layout.tensor << " pp"
                    << layout.pipeline);
  const OracleRun run = RunOracle(fixture, "f32", layout);
  const Tensors wide = Stated(fixture, "oracle_f64");
  const Tensors stated = fixture.narrow ? Stated(fixture, "oracle_f32") : wide;
  const Tensors gradients = Part(stated, "grad.");
  CheckSame("gradient", run.result.gradients, gradients, NormOf(gradients), 1e-6);
  CheckSpread("gradient", run.result.gradients, Part(wide, "grad."), Part(wide, "spread.grad."));
  CheckSpread("logits", {{"logits", run.logits}}, {{"logits", wide.at("logits")}},
              Part(wide, "spread."));
  CheckSpread("weight", run.result.weights, Part(wide, "final."), Part(wide, "spread.final."));
  // Ten updates carry the first gradients' rounding on; three digits of room.
  CheckSame("loss", run.result.losses, stated.at("adamw.losses"), 1e-3);
  CheckSame("norm", run.result.norms, stated.at("adamw.gradient_norms"), 1e-3);
  CheckSame("learning rate", run.result.learning_rates, wide.at("adamw.learning_rates"), 1e-15);
}

}  // namespace

TEST_CASE("oracle: one rank learns what PyTorch learns in ten AdamW steps") {
  for (const Fixture& fixture : kFixtures) {
    CompareF64(fixture, {1, 1, 1, false, "1f1b", 0, 3});
    CompareF32(fixture, {1, 1, 1, false, "1f1b", 0, 3});
  }
}

TEST_CASE("oracle: eight ranks learn what PyTorch learns in ten AdamW steps") {
  for (const Fixture& fixture : kFixtures) {
    CompareF64(fixture, {2, 2, 2, true, "zb-h1", 1, 1});
    CompareF32(fixture, {2, 2, 2, true, "1f1b", 1, 1});
  }
}

}  // namespace trireme::engine
