// Checkpoints of both families, written by ranks that cut each tensor, exported and read back.
#include "checkpoint/hugging_face/export.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "checkpoint/client/writer.h"
#include "checkpoint/hugging_face/config_json.h"
#include "checkpoint/hugging_face/family_names.h"
#include "runtime/safetensors/safetensors.h"
#include "runtime/spec/job_spec.h"
#include "tests/checkpoint/sample_state.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

v1::JobSpec JobOf(const std::string& model) {
  const std::string yaml = "model: {config: {" + model +
                           "}}\ndata: {text_files: [/t.txt], tokenizer: byte, sequence_length: 4}\n"
                           "training: {steps: 1, global_batch_size: 2, micro_batch_size: 1}\n";
  auto job = spec::ParseJob(yaml, "/job.yaml", {});
  INFO(job.status().ToString());
  REQUIRE(job.ok());
  return *std::move(job);
}

constexpr const char* kGpt2 =
    "model_type: gpt2, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, vocab_size: "
    "11, max_position_embeddings: 4";
constexpr const char* kLlama =
    "model_type: llama, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 4, "
    "num_key_value_heads: 2, head_dim: 6, intermediate_size: 12, vocab_size: 11, "
    "max_position_embeddings: 4";

struct Saved {
  std::map<std::string, std::vector<float>> values;  // by name in the checkpoint
  std::string folder;
};

// Every tensor cut in the middle of its elements between two ranks. `more_rows`: padding of the
// vocabulary.
Saved Save(const v1::JobSpec& job, const std::string& root, int64_t more_rows = 0) {
  const auto tensors = ExportedTensors(job.model().config());
  REQUIRE(tensors.ok());
  Saved saved;
  std::vector<StateShard> shards[2];
  float next = 0;
  for (const ExportedTensor& tensor : *tensors) {
    std::vector<int64_t> shape = tensor.shape;
    if (tensor.of_vocabulary) shape.front() += more_rows;
    const layout::Box whole = layout::Box::Whole(shape);
    std::vector<float>& values = saved.values[tensor.name];
    values.resize(static_cast<size_t>(whole.elements()));
    std::iota(values.begin(), values.end(), next);
    next += 1000;
    const int64_t cut = whole.elements() / 2 + 1;
    for (int rank = 0; rank < 2; ++rank) {
      const layout::Interval part =
          rank == 0 ? layout::Interval{0, cut} : layout::Interval{cut, whole.elements()};
      shards[rank].push_back(
          {.name = tensor.name,
           .kind = "parameter",
           .dtype = tensor::DType::kF32,
           .shape = shape,
           .shard = {whole, part},
           .data = std::as_writable_bytes(std::span(values).subspan(
               static_cast<size_t>(part.begin), static_cast<size_t>(part.size())))});
    }
  }
  const auto partial = CheckpointWriter::Prepare(root, 7);
  REQUIRE(partial.ok());
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(CheckpointWriter::WriteRank(*partial, rank, shards[rank]).ok());
  }
  const auto folder =
      CheckpointWriter::Commit(root, 7, {.step = 7, .job_yaml = spec::ToYaml(job), .ranks = 2});
  REQUIRE(folder.ok());
  saved.folder = *folder;
  return saved;
}

absl::Status Export(const Saved& saved, ExportOptions options) {
  const auto checkpoint = Open(saved.folder);
  REQUIRE(checkpoint.ok());
  return ExportCheckpoint(*checkpoint, options);
}

void CheckSame(const Saved& saved, const v1::JobSpec& job, const std::string& folder) {
  const auto config = spec::ReadModelConfig(folder + "/config.json");
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  v1::JobSpec read = job;
  *read.mutable_model()->mutable_config() = *config;
  spec::ApplyDefaults(read);
  CHECK(read.model().config().SerializeAsString() == job.model().config().SerializeAsString());
  const auto tensors = safetensors::Folder::Open(folder);
  INFO(tensors.status().ToString());
  REQUIRE(tensors.ok());
  const auto expected = ExportedTensors(job.model().config());
  CHECK(tensors->tensors().size() == expected->size());
  for (const ExportedTensor& one : *expected) {
    INFO(one.exported_name);
    const auto entry = tensors->Find(one.exported_name);
    REQUIRE(entry.tensor != nullptr);
    CHECK(entry.tensor->shape == one.exported_shape);
    CHECK(entry.tensor->element == safetensors::Element::kF32);
    const std::vector<float>& values = saved.values.at(one.name);
    REQUIRE(entry.data().size() <= values.size() * sizeof(float));
    CHECK(std::memcmp(entry.data().data(), values.data(), entry.data().size()) == 0);
  }
}

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("export: what is read back is what was saved") {
  for (const std::string& model :
       {std::string(kGpt2), std::string(kGpt2) + ", bias: false",
        std::string(kGpt2) + ", tie_word_embeddings: false", std::string(kLlama),
        std::string(kLlama) + ", tie_word_embeddings: true"}) {
    INFO(model);
    const TemporaryFolder root;
    const v1::JobSpec job = JobOf(model);
    const Saved saved = Save(job, root.path() + "/checkpoints");
    uint64_t done = 1, total = 0;
    REQUIRE(Export(saved, {.folder = root.path() + "/out",
                           .progress =
                               [&](uint64_t now, uint64_t all) {
                                 CHECK((now > done || now == 0));
                                 done = now;
                                 total = all;
                                 return absl::OkStatus();
                               }})
                .ok());
    CHECK(done == total);
    CHECK(Names(root.path()) == std::vector<std::string>({"checkpoints", "out"}));
    CHECK(Names(root.path() + "/out") ==
          std::vector<std::string>({"config.json", "model.safetensors"}));
    CheckSame(saved, job, root.path() + "/out");
  }
}

TEST_CASE("export: names and shapes are Hugging Face's") {
  const auto shape_of = [](const std::string& model, const std::string& name) {
    const auto tensors = ExportedTensors(JobOf(model).model().config());
    for (const ExportedTensor& one : *tensors) {
      if (one.exported_name == name) return one.exported_shape;
    }
    return std::vector<int64_t>();
  };
  using Shape = std::vector<int64_t>;
  CHECK(shape_of(kGpt2, "h.1.attn.c_attn.weight") == Shape({8, 24}));
  CHECK(shape_of(kGpt2, "h.1.attn.c_attn.bias") == Shape({24}));
  CHECK(shape_of(kGpt2, "h.0.attn.c_proj.weight") == Shape({8, 8}));
  CHECK(shape_of(kGpt2, "h.0.mlp.c_fc.weight") == Shape({8, 32}));
  CHECK(shape_of(kGpt2, "wte.weight") == Shape({11, 8}));
  CHECK(shape_of(kGpt2, "lm_head.weight").empty());
  const std::string untied = std::string(kGpt2) + ", tie_word_embeddings: false";
  CHECK(shape_of(untied, "lm_head.weight") == Shape({11, 8}));
  CHECK(shape_of(untied, "transformer.ln_f.weight") == Shape({8}));
  CHECK(shape_of(kLlama, "model.layers.1.self_attn.q_proj.weight") == Shape({24, 8}));
  CHECK(shape_of(kLlama, "model.layers.1.self_attn.k_proj.weight") == Shape({12, 8}));
  CHECK(shape_of(kLlama, "model.layers.1.self_attn.o_proj.weight") == Shape({8, 24}));
  CHECK(shape_of(kLlama, "lm_head.weight") == Shape({11, 8}));
}

TEST_CASE("export: a model larger than a file becomes several with an index") {
  const TemporaryFolder root;
  const v1::JobSpec job = JobOf(kLlama);
  const Saved saved = Save(job, root.path() + "/checkpoints");
  REQUIRE(Export(saved, {.folder = root.path() + "/out", .most_file_bytes = 1000}).ok());
  const auto names = Names(root.path() + "/out");
  CHECK(names.size() > 5);
  CHECK(names.back() == "model.safetensors.index.json");
  CheckSame(saved, job, root.path() + "/out");
}

TEST_CASE("export: it tells where it reads and where it writes") {
  const TemporaryFolder root;
  const Saved saved = Save(JobOf(kLlama), root.path() + "/checkpoints");
  const std::string out = root.path() + "/out";
  std::vector<std::string> looks;
  size_t at_first_tell = 0, pieces = 0;
  REQUIRE(Export(saved, {.folder = out,
                         .looks_at = [&](const std::string& path) { looks.push_back(path); },
                         .progress =
                             [&](uint64_t done, uint64_t) {
                               if (done == 0) at_first_tell = looks.size();
                               if (done > 0) ++pieces;
                               return absl::OkStatus();
                             }})
              .ok());
  CHECK(at_first_tell == 1);
  REQUIRE(looks.size() == 1 + 2 * pieces);
  for (size_t i = 0; i < looks.size(); ++i) CHECK(looks[i] == (i % 2 == 0 ? out : saved.folder));
}

TEST_CASE("export: padding of the vocabulary is cut") {
  const TemporaryFolder root;
  const v1::JobSpec job = JobOf(kLlama);
  const Saved saved = Save(job, root.path() + "/checkpoints", /*more_rows=*/5);
  REQUIRE(Export(saved, {.folder = root.path() + "/out"}).ok());
  CheckSame(saved, job, root.path() + "/out");
}

TEST_CASE("export: what ends early leaves nothing") {
  const TemporaryFolder root;
  const Saved saved = Save(JobOf(kGpt2), root.path() + "/checkpoints");
  const std::vector<std::string> before = Names(root.path());
  const auto after = [](uint64_t bytes) {
    return [bytes](uint64_t done, uint64_t) {
      return done < bytes ? absl::OkStatus() : absl::CancelledError("the caller has left");
    };
  };
  for (const uint64_t bytes : {0, 1, 1000, 4000}) {
    CHECK(absl::IsCancelled(
        Export(saved, {.folder = root.path() + "/out", .progress = after(bytes)})));
    CHECK(Names(root.path()) == before);
  }
  FlipByte(saved.folder + "/rank-001.safetensors",
           fs::file_size(saved.folder + "/rank-001.safetensors") - 3);
  CHECK(absl::IsDataLoss(Export(saved, {.folder = root.path() + "/out"})));
  CHECK(Names(root.path()) == before);
}

TEST_CASE("export: folders that cannot be made are refused and stay as they are") {
  const TemporaryFolder root;
  const Saved saved = Save(JobOf(kGpt2), root.path() + "/checkpoints");
  CHECK(absl::IsNotFound(Export(saved, {.folder = root.path() + "/none/out"})));
  WriteAll(root.path() + "/out", "a file");
  CHECK(absl::IsAlreadyExists(Export(saved, {.folder = root.path() + "/out"})));
  CHECK(ReadAll(root.path() + "/out") == "a file");
  CHECK(Names(root.path()) == std::vector<std::string>({"checkpoints", "out"}));
  // One that appears meanwhile.
  fs::remove(root.path() + "/out");
  const auto meanwhile = [&](uint64_t, uint64_t) {
    fs::create_directory(root.path() + "/out");
    return absl::OkStatus();
  };
  CHECK(absl::IsAlreadyExists(
      Export(saved, {.folder = root.path() + "/out", .progress = meanwhile})));
  CHECK(Names(root.path()) == std::vector<std::string>({"checkpoints", "out"}));
  CHECK(fs::is_empty(root.path() + "/out"));
}

}  // namespace trireme::checkpoint
