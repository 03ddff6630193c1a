// What a job of few lines resolves to: every field set, with the documented values.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "runtime/spec/job_spec.h"

namespace trireme::spec {
namespace {

using google::protobuf::FieldDescriptor;

const std::string kGpt2 = "model: {config: {model_type: gpt2}}\ndata: {text_files: [t.txt]}\n";
const std::string kLlama = "model: {config: {model_type: llama}}\ndata: {text_files: [t.txt]}\n";

v1::JobSpec Load(const std::string& text, const std::vector<std::string>& overrides = {}) {
  auto job = ParseJob(text, "/jobs/few.yaml", overrides);
  REQUIRE(job.status().ToString() == "OK");
  return *std::move(job);
}

void CollectAbsent(const google::protobuf::Message& message, const std::string& prefix,
                   std::set<std::string>& absent) {
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const std::string path = prefix + field.name();
    if (field.is_repeated()) {
      if (message.GetReflection()->FieldSize(message, &field) == 0) absent.insert(path);
    } else if (!message.GetReflection()->HasField(message, &field)) {
      absent.insert(path);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      CollectAbsent(message.GetReflection()->GetMessage(message, &field), path + ".", absent);
    }
  }
}

TEST_CASE("a resolved job has every field set but for what only the run can tell") {
  for (const std::string& text : {kGpt2, kLlama}) {
    std::set<std::string> absent;
    CollectAbsent(Load(text), "", absent);
    CHECK(absent == std::set<std::string>{"model.config_path", "parallelism.layers_per_stage",
                                          "parallelism.recompute", "checkpoint.directory",
                                          "runtime.trace_at", "resources.nodes",
                                          "offload.directory"});
  }
}

TEST_CASE("defaults of a gpt2 job are GPT2Config's and the documented ones") {
  const v1::JobSpec job = Load(kGpt2);
  const std::string yaml = ToYaml(job);
  for (const char* line : {
           "name: \"few\"",
           "seed: 1337",
           "    hidden_size: 768",
           "    num_hidden_layers: 12",
           "    num_attention_heads: 12",
           "    num_key_value_heads: 12",
           "    head_dim: 64",
           "    intermediate_size: 3072",
           "    vocab_size: 0",
           "    max_position_embeddings: 1024",
           "    norm_epsilon: 1e-05",
           "    tie_word_embeddings: true",
           "    bias: true",
           "    embd_pdrop: 0.1",
           "    attn_pdrop: 0.1",
           "    resid_pdrop: 0.1",
           "    initializer_range: 0.02",
           "  text_files: [\"/jobs/t.txt\"]",
           "  tokenizer: \"char\"",
           "  sequence_length: 64",
           "  validation_fraction: 0.1",
           "  order: \"random\"",
           "  steps: 1000",
           "  global_batch_size: 8",
           "  micro_batch_size: 4",
           "  nonfinite_policy: \"stop\"",
           "  dtype: \"f32\"",
           "  loss_tile_rows: 0",
           "  gradient_transfer: \"f32\"",
           "  learning_rate: 0.001",
           "  min_learning_rate: 1e-04",
           "  warmup_steps: 100",
           "  schedule: \"cosine\"",
           "  decay_steps: 1000",
           "  beta1: 0.9",
           "  beta2: 0.95",
           "  epsilon: 1e-08",
           "  weight_decay: 0.1",
           "  gradient_clip_norm: 1",
           "  data_parallel_size: 0",
           "  tensor_parallel_size: 1",
           "  pipeline_parallel_size: 1",
           "  sequence_parallel: false",
           "  zero_stage: 0",
           "  schedule: \"1f1b\"",
           "  virtual_stages: 1",
           "  bucket_bytes: 4194304",
           "  every_steps: 0",
           "  keep: 2",
           "  every_steps: 250",
           "  samples: 0",
           "  threads: 0",
           "  deadline_seconds: 60",
           "  kernels: \"cpu\"",
           "  log_every_steps: 1",
           "  trace_steps: 2",
           "  asynchronous_streams: false",
           "  replica_check_steps: 100",
           "  prompt: \"\\n\"",
           "  max_new_tokens: 200",
           "  temperature: 0.8",
           "  top_k: 200",
           "    mode: \"off\"",
           "    bound: \"rms:0.55\"",
           "    min_bytes: 65536",
           "    bound: \"rms:0.05\"",
           "  link_gbits: 0",
       }) {
    INFO(line);
    CHECK(("\n" + yaml).find(absl::StrCat("\n", line, "\n")) != std::string::npos);
  }
}

TEST_CASE("defaults of a llama job are LlamaConfig's") {
  const v1::ModelConfig model = Load(kLlama).model().config();
  CHECK(model.hidden_size() == 4096);
  CHECK(model.num_hidden_layers() == 32);
  CHECK(model.num_attention_heads() == 32);
  CHECK(model.num_key_value_heads() == 32);
  CHECK(model.head_dim() == 128);
  CHECK(model.intermediate_size() == 11008);
  CHECK(model.max_position_embeddings() == 2048);
  CHECK(model.norm_epsilon() == 1e-6);
  CHECK(model.rope_theta() == 10000.0);
  CHECK_FALSE(model.tie_word_embeddings());
  CHECK_FALSE(model.bias());
  CHECK(model.embd_pdrop() + model.attn_pdrop() + model.resid_pdrop() == 0.0);
}

// As in Hugging Face, where q_proj is hidden_size x (num_attention_heads * head_dim).
TEST_CASE("a given head_dim stands even where heads do not divide the width") {
  const std::string narrow =
      "model: {config: {model_type: llama, hidden_size: 100, num_attention_heads: 6, head_dim: ";
  for (const int head_dim : {16, 18, 2, 64}) {
    INFO(head_dim);
    const v1::JobSpec job =
        Load(absl::StrCat(narrow, head_dim, "}}\ndata: {text_files: [a.txt]}\n"));
    CHECK(job.model().config().head_dim() == head_dim);
  }
}

TEST_CASE("defaults follow the values they are derived from") {
  const v1::JobSpec job =
      Load(kGpt2 +
           "training: {steps: 40, global_batch_size: 3, micro_batch_size: 0, dtype: f64}\n"
           "optimizer: {learning_rate: 0.5, decay_steps: 0}\n"
           "parallelism: {schedule: interleaved, pipeline_parallel_size: 2}\n");
  CHECK(job.training().micro_batch_size() == 3);
  CHECK(job.optimizer().warmup_steps() == 4);
  CHECK(job.optimizer().decay_steps() == 40);
  CHECK(job.optimizer().min_learning_rate() == 0.05);
  CHECK(job.parallelism().virtual_stages() == 2);
  CHECK(job.runtime().kernels() == "reference");
}

TEST_CASE("defaults leave what was given, and applying them twice changes nothing") {
  v1::JobSpec job = Load(kGpt2 + "seed: 0\noptimizer: {weight_decay: 0, beta1: 0}\n");
  CHECK(job.seed() == 0);
  CHECK(job.optimizer().weight_decay() == 0.0);
  CHECK(job.optimizer().beta1() == 0.0);
  const std::string once = job.SerializeAsString();
  ApplyDefaults(job);
  CHECK(job.SerializeAsString() == once);
}

}  // namespace
}  // namespace trireme::spec
