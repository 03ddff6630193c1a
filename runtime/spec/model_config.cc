// Hugging Face's config.json: tables say which key fills which field, which keys must have which
// value because the maths of others is not built, and which keys do not matter here. Sources of
// meanings: GPT2Config and LlamaConfig of transformers.
#include "runtime/spec/model_config.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "nlohmann/json.hpp"
#include "runtime/base/check.h"
#include "runtime/json/json_text.h"
#include "runtime/spec/job_spec.h"
#include "runtime/spec/read_file.h"
#include "runtime/spec/yaml_document.h"

namespace trireme::spec {
namespace {

using google::protobuf::FieldDescriptor;
using nlohmann::json;

constexpr size_t kMaxConfigBytes = 1 << 20;

// `family`: "" both.
struct KeyOfField {
  absl::string_view family;
  absl::string_view key;
  const char* field;
};
constexpr KeyOfField kKeysOfFields[] = {
    {"", "model_type", "model_type"},
    {"", "vocab_size", "vocab_size"},
    {"", "initializer_range", "initializer_range"},
    {"", "tie_word_embeddings", "tie_word_embeddings"},
    {"", "bias", "bias"},
    {"", "hidden_size", "hidden_size"},
    {"", "num_hidden_layers", "num_hidden_layers"},
    {"", "num_attention_heads", "num_attention_heads"},
    {"", "max_position_embeddings", "max_position_embeddings"},
    {"gpt2", "n_embd", "hidden_size"},
    {"gpt2", "n_layer", "num_hidden_layers"},
    {"gpt2", "n_head", "num_attention_heads"},
    {"gpt2", "n_positions", "max_position_embeddings"},
    {"gpt2", "n_ctx", "max_position_embeddings"},
    {"gpt2", "n_inner", "intermediate_size"},
    {"gpt2", "layer_norm_epsilon", "norm_epsilon"},
    {"gpt2", "resid_pdrop", "resid_pdrop"},
    {"gpt2", "embd_pdrop", "embd_pdrop"},
    {"gpt2", "attn_pdrop", "attn_pdrop"},
    {"llama", "num_key_value_heads", "num_key_value_heads"},
    {"llama", "head_dim", "head_dim"},
    {"llama", "intermediate_size", "intermediate_size"},
    {"llama", "rms_norm_eps", "norm_epsilon"},
    {"llama", "rope_theta", "rope_theta"},
};

// Keys that change the maths: legal values as JSON, separated by '|'. An absent key has the first
// one.
struct FixedKey {
  absl::string_view family;
  absl::string_view key;
  absl::string_view legal;
};
constexpr FixedKey kFixedKeys[] = {
    {"gpt2", "activation_function", "\"gelu_new\"|\"gelu_pytorch_tanh\""},
    {"gpt2", "scale_attn_weights", "true"},
    {"gpt2", "scale_attn_by_inverse_layer_idx", "false"},
    {"gpt2", "reorder_and_upcast_attn", "false"},
    {"llama", "hidden_act", "\"silu\""},
    {"llama", "rope_scaling", "null"},
    {"llama", "attention_bias", "false"},
    {"llama", "mlp_bias", "false"},
    {"llama", "attention_dropout", "0"},
    {"llama", "sliding_window", "null"},
    {"llama", "use_sliding_window", "false"},
    {"llama", "partial_rotary_factor", "1"},
    {"llama", "rope_interleaved", "false"},
    {"", "add_cross_attention", "false"},
    {"", "is_encoder_decoder", "false"},
    {"", "quantization_config", "null"},
    {"", "pruned_heads", "{}|null"},
};

// Keys of no effect on training from a job file.
constexpr absl::string_view kKnownKeys[] = {
    "_name_or_path",
    "_attn_implementation",
    "architectures",
    "attn_implementation",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "is_decoder",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "predict_special_tokens",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unk_token_id",
    "use_cache",
};

bool ForFamily(absl::string_view of_key, const std::string& family) {
  return of_key.empty() || of_key == family;
}

std::string Shown(const json& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "a list";
  return Printable(json_text::Write(value));
}

// Key -> the lines of its occurrences at any depth, in one pass. Keys with escapes stay as they are
// written.
std::map<std::string, std::vector<int>> LinesOfKeys(const std::string& text) {
  std::map<std::string, std::vector<int>> lines;
  int line = 1;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\n') ++line;
    if (text[at] != '"') continue;
    size_t end = at + 1;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size()) break;
    const size_t after = text.find_first_not_of(" \t\r\n", end + 1);
    if (after != std::string::npos && text[after] == ':') {
      lines[text.substr(at + 1, end - at - 1)].push_back(line);
    }
    at = end;
  }
  return lines;
}

class ConfigReader {
 public:
  ConfigReader(const std::string& label, int order, const std::string& text,
               ModelConfigReading& out)
      : label_(label), order_(order), text_(text), out_(out), lines_(LinesOfKeys(text)) {}

  void Read() {
    json document;
    if (!Parse(document)) return;
    if (!document.is_object()) {
      Refuse("", 0, absl::StrCat("expected an object {...}, got ", Shown(document)));
      return;
    }
    const auto type = document.find("model_type");
    if (type == document.end() || !type->is_string() || (*type != "gpt2" && *type != "llama")) {
      Refuse(
          "model_type", Line("model_type"),
          absl::StrCat(type == document.end() ? "is missing" : Shown(*type) + " is not supported",
                       ", expected \"gpt2\" or \"llama\""));
      return;
    }
    family_ = type->get<std::string>();
    for (const auto& [key, value] : document.items()) Key(key, value);
  }

 private:
  bool Parse(json& document) {
    std::set<std::string> keys;
    const auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
      if (event != json::parse_event_t::key || depth != 1) return true;
      const std::string key = parsed.get<std::string>();
      if (!keys.insert(key).second) Refuse(key, Line(key, 1), "given twice; remove one of them");
      return true;
    };
    std::optional<json_text::Fault> fault;
    document = json_text::Parse(text_, callback, &fault);
    if (!fault.has_value()) return true;
    const auto end = text_.begin() + static_cast<long>(std::min(fault->byte, text_.size()));
    const size_t reason = fault->what.find("syntax error");
    Refuse("", fault->byte == 0 ? 0 : static_cast<int>(1 + std::count(text_.begin(), end, '\n')),
           absl::StrCat("is not JSON: ",
                        Printable(fault->what.substr(reason == std::string::npos ? 0 : reason))));
    return false;
  }

  void Key(const std::string& key, const json& value) {
    for (const KeyOfField& entry : kKeysOfFields) {
      if (entry.key == key && ForFamily(entry.family, family_)) {
        if (!value.is_null()) Store(key, entry.field, value);
        return;
      }
    }
    for (const FixedKey& entry : kFixedKeys) {
      if (entry.key == key && ForFamily(entry.family, family_)) {
        Fixed(entry, value);
        return;
      }
    }
    if (key == "rope_parameters" && family_ == "llama") {
      RopeParameters(value);
      return;
    }
    const auto* end = std::end(kKnownKeys);
    if (std::find(std::begin(kKnownKeys), end, key) == end && out_.warnings.size() < kMaxFaults) {
      out_.warnings.push_back(absl::StrCat(Position{order_, label_, Line(key)}.ToString(), ": ",
                                           Printable(key), ": unknown key of a ", family_,
                                           " config, ignored"));
    }
  }

  void Fixed(const FixedKey& entry, const json& value) {
    absl::string_view rest = entry.legal;
    std::vector<absl::string_view> legal;
    while (!rest.empty()) {
      const size_t bar = std::min(rest.find('|'), rest.size());
      legal.push_back(rest.substr(0, bar));
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    for (absl::string_view one : legal) {
      if (json_text::Parse(std::string_view(one.data(), one.size())) == value) return;
    }
    std::string shown = Shown(value);
    if (value.is_object()) {
      const auto type = value.contains("rope_type") ? value.find("rope_type") : value.find("type");
      if (type != value.end()) absl::StrAppend(&shown, " of type ", Shown(*type));
    }
    Refuse(std::string(entry.key), Line(std::string(entry.key)),
           absl::StrCat(shown, " changes the maths and is not supported, expected ",
                        absl::StrJoin(legal, " or ")));
  }

  // Newer configs hold rope_theta in an object.
  void RopeParameters(const json& value) {
    if (value.is_null()) return;
    const std::string key = "rope_parameters";
    if (!value.is_object()) {
      Refuse(key, Line(key), absl::StrCat("expected an object, got ", Shown(value)));
      return;
    }
    for (const auto& [name, inner] : value.items()) {
      if (name == "rope_theta") {
        Store(name, "rope_theta", inner);
      } else if (name != "rope_type" || inner != "default") {
        Refuse(absl::StrCat(key, ".", Printable(name)), Line(name),
               absl::StrCat(Shown(inner),
                            " changes the maths and is not supported, expected only "
                            "rope_theta and rope_type \"default\""));
      }
    }
  }

  void Store(const std::string& key, const char* name, const json& value) {
    const FieldDescriptor* field = v1::ModelConfig::descriptor()->FindFieldByName(name);
    TRIREME_CHECK(field != nullptr);
    v1::ModelConfig one;
    const google::protobuf::Reflection& reflection = *one.GetReflection();
    std::string expected;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
        if (value.is_number_integer() &&
            !(value.is_number_unsigned() &&
              value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})) {
          reflection.SetInt64(&one, field, value.get<int64_t>());
        } else {
          expected = "a whole number";
        }
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        if (value.is_number()) {
          reflection.SetDouble(&one, field, value.get<double>());
        } else {
          expected = "a number";
        }
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        if (value.is_boolean()) {
          reflection.SetBool(&one, field, value.get<bool>());
        } else {
          expected = "true or false";
        }
        break;
      default:
        if (value.is_string()) {
          reflection.SetString(&one, field, value.get<std::string>());
        } else {
          expected = "a text";
        }
    }
    if (!expected.empty()) {
      Refuse(key, Line(key), absl::StrCat("expected ", expected, ", got ", Shown(value)));
      return;
    }
    v1::ModelConfig merged = out_.config;
    merged.MergeFrom(one);
    const auto before = key_of_field_.find(name);
    if (before != key_of_field_.end() &&
        merged.SerializeAsString() != out_.config.SerializeAsString()) {
      Refuse(key, Line(key),
             absl::StrCat(Shown(value), " differs from ", before->second,
                          ", which means the same; remove one of them"));
      return;
    }
    out_.config = std::move(merged);
    out_.lines[name] = Line(key);
    key_of_field_[name] = key;
  }

  // Line of the `occurrence`-th (from 0) of `key`; 0 if it cannot be told.
  int Line(const std::string& key, size_t occurrence = 0) const {
    const auto found = lines_.find(key);
    return found == lines_.end() || occurrence >= found->second.size() ? 0
                                                                       : found->second[occurrence];
  }
  void Refuse(const std::string& key, int line, std::string message) {
    if (out_.faults.size() >= kMaxFaults) return;
    out_.faults.push_back({{order_, label_, line}, {Printable(key), std::move(message)}});
  }

  const std::string& label_;
  int order_;
  const std::string& text_;
  ModelConfigReading& out_;
  const std::map<std::string, std::vector<int>> lines_;
  std::string family_;
  std::map<std::string, std::string> key_of_field_;
};

}  // namespace

ModelConfigReading ReadModelConfigFile(const std::string& path, const std::string& label,
                                       int order) {
  ModelConfigReading reading;
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxConfigBytes);
  if (!text.ok()) {
    reading.faults.push_back({{order, label, 0}, {"", std::string(text.status().message())}});
    return reading;
  }
  ConfigReader(label, order, *text, reading).Read();
  return reading;
}

absl::StatusOr<v1::ModelConfig> ReadModelConfig(const std::string& path,
                                                std::vector<std::string>* warnings) {
  ModelConfigReading reading = ReadModelConfigFile(path, path, 0);
  if (warnings != nullptr) {
    warnings->insert(warnings->end(), reading.warnings.begin(), reading.warnings.end());
  }
  if (!reading.faults.empty()) {
    return absl::InvalidArgumentError(FormatFaults(std::move(reading.faults)));
  }
  return std::move(reading.config);
}

}  // namespace trireme::spec
