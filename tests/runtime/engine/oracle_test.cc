// PyTorch's word (tests/oracle): gradients of the first batch and ten AdamW losses of three tiny
// models, on one rank and on layouts that cut everything.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/safetensors/safetensors.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

constexpr int64_t kSamples = 3, kTokens = 8, kSteps = 10;

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
  StoredDataset(const safetensors::File& file, std::unique_ptr<data::Dataset> vocabulary)
      : vocabulary_(std::move(vocabulary)),
        tokens_(Read(file, "tokens")),
        targets_(Read(file, "targets")) {}
  const data::Tokenizer& tokenizer() const override { return vocabulary_->tokenizer(); }
  int64_t samples(data::Split) const override { return kSamples * kSteps; }
  int64_t sequence_length() const override { return kTokens; }
  int64_t tokens(data::Split) const override { return kSamples * kSteps * kTokens; }
  void Read(data::Split, int64_t, std::span<int32_t>) const override {}
  void Fill(data::Split, int64_t sample, std::span<int32_t> tokens,
            std::span<int32_t> targets) const override {
    std::copy_n(tokens_.begin() + sample * kTokens, kTokens, tokens.begin());
    std::copy_n(targets_.begin() + sample * kTokens, kTokens, targets.begin());
  }

 private:
  static std::vector<int32_t> Read(const safetensors::File& file, const char* name) {
    const std::span<const std::byte> bytes = *file.Data(name);
    std::vector<int32_t> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::unique_ptr<data::Dataset> vocabulary_;
  std::vector<int32_t> tokens_, targets_;
};

struct Layout {
  int64_t data, tensor, pipeline;
  bool sequence_parallel;
  const char* schedule;
  int64_t zero, micro_batch;
};

v1::JobSpec JobFor(const std::string& name, const std::string& dtype, const Layout& layout) {
  v1::JobSpec job;
  auto config = spec::ReadModelConfig(FolderOf(name) + "/config.json");
  REQUIRE(config.ok());
  *job.mutable_model()->mutable_config() = *config;
  job.mutable_data()->set_sequence_length(kTokens);
  job.mutable_training()->set_steps(kSteps);
  job.mutable_training()->set_global_batch_size(kSamples);
  job.mutable_training()->set_micro_batch_size(layout.micro_batch);
  job.mutable_training()->set_dtype(dtype);
  v1::OptimizerSpec& optimizer = *job.mutable_optimizer();
  optimizer.set_learning_rate(0.01);
  optimizer.set_min_learning_rate(0.001);
  optimizer.set_warmup_steps(3);
  optimizer.set_decay_steps(kSteps);
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

void Compare(const std::string& name, const std::string& dtype, const Layout& layout,
             double limit) {
  INFO(name << " " << dtype << " dp" << layout.data << " tp" << layout.tensor << " pp"
            << layout.pipeline);
  const auto weights = safetensors::File::Open(FolderOf(name) + "/model.safetensors");
  const auto batches = safetensors::File::Open(FolderOf(name) + "/batches.safetensors");
  const auto oracle =
      safetensors::File::Open(absl::StrCat(FolderOf(name), "/oracle_", dtype, ".safetensors"));
  REQUIRE((weights.ok() && batches.ok() && oracle.ok()));
  Tensors initial, gradients;
  for (const safetensors::TensorInfo& tensor : weights->header().tensors) {
    initial[tensor.name] = Values(*weights, tensor);
  }
  for (const safetensors::TensorInfo& tensor : oracle->header().tensors) {
    if (tensor.name.starts_with("grad."))
      gradients[tensor.name.substr(5)] = Values(*oracle, tensor);
  }
  const StoredDataset dataset(*batches, MakeRandomDataset(29, kTokens));
  const int ranks = static_cast<int>(layout.data * layout.tensor * layout.pipeline);
  const auto result = RunLayout(JobFor(name, dtype, layout), ranks, dataset,
                                {.steps = kSteps, .initial = &initial});
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  const auto over = Differences(result->gradients, gradients, NormOf(gradients), limit);
  for (const auto& [parameter, worst] : over) UNSCOPED_INFO(parameter << " " << worst);
  CHECK(over.empty());
  const std::vector<double> losses = Values(*oracle, *oracle->Find("adamw.losses"));
  const std::vector<double> norms = Values(*oracle, *oracle->Find("adamw.gradient_norms"));
  for (size_t step = 0; step < losses.size(); ++step) {
    // Ten updates carry the first gradients' rounding on; three digits of room.
    CHECK(result->losses[step] == Approx(losses[step]).epsilon(1e3 * limit).margin(0));
    CHECK(result->norms[step] == Approx(norms[step]).epsilon(1e3 * limit).margin(0));
  }
}

}  // namespace

TEST_CASE("oracle: gradients and ten AdamW losses equal PyTorch's on one rank") {
  for (const char* name : {"gpt2_bias", "gpt2_no_bias", "llama_grouped"}) {
    Compare(name, "f64", {1, 1, 1, false, "1f1b", 0, 3}, 1e-14);
    Compare(name, "f32", {1, 1, 1, false, "1f1b", 0, 3}, 1e-6);
  }
}

TEST_CASE("oracle: gradients and ten AdamW losses equal PyTorch's on eight ranks") {
  for (const char* name : {"gpt2_bias", "gpt2_no_bias", "llama_grouped"}) {
    Compare(name, "f64", {2, 2, 2, true, "zb-h1", 1, 1}, 1e-14);
    Compare(name, "f32", {2, 2, 2, true, "1f1b", 1, 1}, 1e-6);
  }
}

}  // namespace trireme::engine
