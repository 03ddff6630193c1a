// The example jobs load without a warning, and their echo is the same job.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/spec/job_spec.h"

namespace trireme::spec {
namespace {

std::vector<std::string> Examples() {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(TRIREME_SOURCE_DIR "/deploy/examples")) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  return paths;
}

TEST_CASE("every example job loads, and its echo loads to the same message") {
  const std::vector<std::string> examples = Examples();
  CHECK(examples.size() >= 8);
  for (const std::string& path : examples) {
    INFO(path);
    std::vector<std::string> warnings;
    const auto job = LoadJob(path, {}, &warnings);
    REQUIRE(job.status().ToString() == "OK");
    CHECK(warnings.empty());
    CHECK(job->name() == std::filesystem::path(path).stem().string());
    const auto again = ParseJob(ToYaml(*job), "/elsewhere/echo.yaml", {});
    INFO(ToYaml(*job));
    REQUIRE(again.status().ToString() == "OK");
    CHECK(again->SerializeAsString() == job->SerializeAsString());
    CHECK(SpecHash(*again) == SpecHash(*job));
  }
}

TEST_CASE("the nanoGPT example is the published run") {
  const auto job = LoadJob(TRIREME_SOURCE_DIR "/deploy/examples/shakespeare_char.yaml", {});
  REQUIRE(job.ok());
  const v1::ModelConfig& model = job->model().config();
  CHECK(model.hidden_size() == 128);
  CHECK(model.num_hidden_layers() == 4);
  CHECK(model.num_attention_heads() == 4);
  CHECK_FALSE(model.bias());
  CHECK(model.embd_pdrop() + model.attn_pdrop() + model.resid_pdrop() == 0.0);
  CHECK(job->data().sequence_length() == 64);
  CHECK(job->training().global_batch_size() == 12);
  CHECK(job->training().steps() == 2000);
  CHECK(job->optimizer().learning_rate() == 1e-3);
  CHECK(job->optimizer().min_learning_rate() == 1e-4);
  CHECK(job->optimizer().warmup_steps() == 100);
  CHECK(job->optimizer().decay_steps() == 2000);
  CHECK(job->optimizer().beta2() == 0.99);
}

}  // namespace
}  // namespace trireme::spec
