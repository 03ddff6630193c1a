// Hugging Face's config.json: what maps to what, what warns, what is refused.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/base/check.h"
#include "runtime/spec/job_spec.h"

namespace trireme::spec {
namespace {

// Of this process alone: tests run beside each other.
class Folder {
 public:
  Folder() { TRIREME_CHECK(mkdtemp(path_) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/trireme_config_XXXXXX";
};

std::string Write(const std::string& text) {
  static const Folder folder;
  const std::string path = folder.path() + "/config.json";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string Refusal(const std::string& text) {
  const auto config = ReadModelConfig(Write(text));
  REQUIRE(config.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

TEST_CASE("gpt2's published config maps to the common names") {
  std::vector<std::string> warnings;
  const auto config =
      ReadModelConfig(TRIREME_SOURCE_DIR "/deploy/examples/gpt2_124m_model.json", &warnings);
  REQUIRE(config.status().ToString() == "OK");
  CHECK(warnings.empty());
  CHECK(config->model_type() == "gpt2");
  CHECK(config->hidden_size() == 768);
  CHECK(config->num_hidden_layers() == 12);
  CHECK(config->num_attention_heads() == 12);
  CHECK(config->max_position_embeddings() == 1024);
  CHECK(config->vocab_size() == 50257);
  CHECK(config->norm_epsilon() == 1e-5);
  CHECK(config->attn_pdrop() == 0.1);
  CHECK_FALSE(config->has_intermediate_size());
  CHECK_FALSE(config->has_bias());
}

TEST_CASE("every gpt2 key reaches its own field") {
  const auto config = ReadModelConfig(
      Write(R"({"model_type": "gpt2", "n_embd": 2, "n_layer": 3, "n_head": 4, "n_positions": 5,
               "n_inner": 6, "vocab_size": 7, "layer_norm_epsilon": 0.25, "resid_pdrop": 0.5,
               "embd_pdrop": 0.125, "attn_pdrop": 0.0625, "initializer_range": 1,
               "tie_word_embeddings": false, "bias": false})"));
  REQUIRE(config.status().ToString() == "OK");
  CHECK(config->ShortDebugString() ==
        "model_type: \"gpt2\" hidden_size: 2 num_hidden_layers: 3 num_attention_heads: 4 "
        "intermediate_size: 6 vocab_size: 7 max_position_embeddings: 5 norm_epsilon: 0.25 "
        "tie_word_embeddings: false bias: false embd_pdrop: 0.125 attn_pdrop: 0.0625 "
        "resid_pdrop: 0.5 initializer_range: 1");
}

TEST_CASE("every llama key reaches its own field") {
  const auto config =
      ReadModelConfig(Write(R"({"model_type": "llama", "hidden_size": 2, "num_hidden_layers": 3,
               "num_attention_heads": 4, "num_key_value_heads": 5, "head_dim": 6,
               "intermediate_size": 7, "vocab_size": 8, "max_position_embeddings": 9,
               "rms_norm_eps": 0.25, "rope_theta": 500000.0, "rope_scaling": null,
               "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
               "attention_dropout": 0.0, "tie_word_embeddings": true, "pretraining_tp": 1})"));
  REQUIRE(config.status().ToString() == "OK");
  CHECK(config->ShortDebugString() ==
        "model_type: \"llama\" hidden_size: 2 num_hidden_layers: 3 num_attention_heads: 4 "
        "num_key_value_heads: 5 head_dim: 6 intermediate_size: 7 vocab_size: 8 "
        "max_position_embeddings: 9 norm_epsilon: 0.25 rope_theta: 500000 "
        "tie_word_embeddings: true");
}

TEST_CASE("rope_theta is found in rope_parameters, which may hold nothing that scales") {
  const auto config = ReadModelConfig(Write(
      R"({"model_type": "llama",
          "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}})"));
  REQUIRE(config.status().ToString() == "OK");
  CHECK(config->rope_theta() == 5e5);
  CHECK(absl::StrContains(
      Refusal(R"({"model_type": "llama", "rope_parameters": {"rope_type": "yarn"}})"),
      ":1: rope_parameters.rope_type: \"yarn\" changes the maths"));
}

TEST_CASE("unknown keys warn with their line, known idle ones do not, other families' do") {
  std::vector<std::string> warnings;
  const std::string path = Write(
      "{\n\"model_type\": \"gpt2\",\n\"torch_dtype\": \"float32\",\n\"my_key\": [1],\n"
      "\"rms_norm_eps\": 1e-6}");
  REQUIRE(ReadModelConfig(path, &warnings).ok());
  CHECK(warnings ==
        std::vector<std::string>{path + ":4: my_key: unknown key of a gpt2 config, ignored",
                                 path + ":5: rms_norm_eps: unknown key of a gpt2 config, ignored"});
}

TEST_CASE("keys that change the maths are refused by name, all at once") {
  const std::string gpt2 = Refusal(R"({"model_type": "gpt2", "activation_function": "relu",
      "scale_attn_weights": false, "scale_attn_by_inverse_layer_idx": true,
      "reorder_and_upcast_attn": true, "add_cross_attention": true,
      "quantization_config": {"bits": 4}, "pruned_heads": {"1": [2]}})");
  for (const char* key :
       {"activation_function", "scale_attn_weights", "scale_attn_by_inverse_layer_idx",
        "reorder_and_upcast_attn", "add_cross_attention", "quantization_config", "pruned_heads"}) {
    INFO(gpt2);
    CHECK(absl::StrContains(gpt2, std::string(": ") + key + ": "));
  }
  const std::string llama = Refusal(R"({"model_type": "llama", "hidden_act": "gelu",
      "rope_scaling": {"type": "linear", "factor": 2.0}, "attention_bias": true, "mlp_bias": true,
      "attention_dropout": 0.1, "sliding_window": 4096, "partial_rotary_factor": 0.5})");
  for (const char* key : {"hidden_act", "rope_scaling", "attention_bias", "mlp_bias",
                          "attention_dropout", "sliding_window", "partial_rotary_factor"}) {
    INFO(llama);
    CHECK(absl::StrContains(llama, std::string(": ") + key + ": "));
  }
}

TEST_CASE("what is no config.json is refused by what it is") {
  CHECK(absl::StrContains(Refusal(""), "is not JSON"));
  CHECK(absl::StrContains(Refusal("[1]"), "expected an object {...}, got a list"));
  CHECK(absl::StrContains(Refusal("{}"), "model_type: is missing, expected \"gpt2\" or \"llama\""));
  CHECK(absl::StrContains(Refusal(R"({"model_type": "qwen2"})"), "\"qwen2\" is not supported"));
  CHECK(absl::StrContains(Refusal("{\"model_type\": \"gpt2\", \"a\": \"\xff\"}"), "is not JSON"));
  CHECK(absl::StrContains(Refusal(R"({"model_type": "gpt2", "n_embd": 18446744073709551615})"),
                          "n_embd: expected a whole number"));
  CHECK(
      absl::StrContains(Refusal(R"({"model_type": "gpt2", "resid_pdrop": 1e999})"), "is not JSON"));
  CHECK(absl::StrContains(Refusal(std::string(500000, '[')), "is not JSON"));
  CHECK_FALSE(
      Refusal(R"({"a": )" + std::string(300000, '[') + std::string(300000, ']') + "}").empty());
}

TEST_CASE("a field inline wins over config_path, and keeps its own line") {
  const std::string path = Write("{\n\"model_type\": \"gpt2\",\n\"n_embd\": 64,\n\"n_head\": 4}");
  const std::string text = "model:\n  config_path: " + path +
                           "\n  config:\n    hidden_size: 32\ndata: {text_files: [a]}\n";
  const auto job = ParseJob(text, "/jobs/job.yaml", {});
  REQUIRE(job.status().ToString() == "OK");
  CHECK(job->model().config().hidden_size() == 32);
  CHECK(job->model().config().num_attention_heads() == 4);
  CHECK_FALSE(job->model().has_config_path());
  const auto refused =
      ParseJob(text, "/jobs/job.yaml", std::vector<std::string>{"model.config.hidden_size=-3"});
  REQUIRE_FALSE(refused.ok());
  CHECK(absl::StartsWith(refused.status().message(), "--set model.config.hidden_size=-3: "));
}

}  // namespace
}  // namespace trireme::spec
