// The rules of a job: ranges and lists of legal values as tables, what ties fields together as one
// small function each. A rule that needs a value which is itself out of range stays silent: the
// range rule has already spoken.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "runtime/base/check.h"
#include "runtime/spec/field_path.h"
#include "runtime/spec/job_spec.h"
#include "runtime/spec/resource_rules.h"
#include "runtime/spec/transfer_rules.h"
#include "runtime/spec/yaml_document.h"

namespace trireme::spec {
namespace {

using Faults = std::vector<Fault>;

struct IntegerRange {
  absl::string_view path;
  int64_t least;
  int64_t most;
  // What else may be written: ApplyDefaults has put a number in its place.
  absl::string_view also = "";
};
constexpr int64_t kBillion = 1000000000;
constexpr IntegerRange kIntegerRanges[] = {
    {"model.config.hidden_size", 1, 1 << 20},
    {"model.config.num_hidden_layers", 1, 10000},
    {"model.config.num_attention_heads", 1, 1 << 16},
    {"model.config.num_key_value_heads", 1, 1 << 16},
    {"model.config.head_dim", 1, 1 << 16},
    {"model.config.intermediate_size", 1, 1 << 24},
    {"model.config.vocab_size", 0, 1 << 24},
    {"model.config.max_position_embeddings", 1, 1 << 24},
    {"data.sequence_length", 1, 1 << 24},
    {"training.steps", 1, kBillion},
    {"training.global_batch_size", 1, 1 << 24},
    {"training.micro_batch_size", 1, 1 << 24, " (or 0: min(global_batch_size, 4))"},
    {"training.loss_tile_rows", 0, 1 << 24},
    {"optimizer.warmup_steps", 0, kBillion},
    {"optimizer.decay_steps", 1, kBillion},
    {"parallelism.data_parallel_size", 0, 1 << 20},
    {"parallelism.tensor_parallel_size", 1, 1 << 16},
    {"parallelism.pipeline_parallel_size", 1, 1 << 16},
    {"parallelism.zero_stage", 0, 3},
    {"parallelism.virtual_stages", 1, 64},
    {"parallelism.bucket_bytes", 1024, int64_t{1} << 36},
    {"offload.piece_bytes", 0, int64_t{1} << 36},
    {"checkpoint.every_steps", 0, kBillion},
    {"checkpoint.keep", 0, kBillion},
    {"evaluation.every_steps", 0, kBillion},
    {"evaluation.samples", 0, kBillion},
    {"runtime.threads", 0, 4096},
    {"runtime.log_every_steps", 1, kBillion},
    {"runtime.trace_steps", 0, 10000},
    {"runtime.replica_check_steps", 0, kBillion},
    {"generation.max_new_tokens", 0, 1 << 24},
    {"generation.top_k", 0, 1 << 24},
    {"compression.data_parallel.min_bytes", 0, int64_t{1} << 40},
    {"compression.pipeline.min_bytes", 0, int64_t{1} << 40},
    {"resources.ranks", 0, 1 << 20},
    {"resources.cpus_per_rank", 0, 4096},
    {"resources.memory_mib_per_rank", 0, 1 << 30},
    {"resources.gpus_per_rank", 0, 64},
    {"resources.priority", -100, 100},
    {"resources.max_failures", 1, 1000},
};

// least <= x <= most; an open end excludes its bound.
struct RealRange {
  absl::string_view path;
  double least;
  double most;
  bool open_least = false;
  bool open_most = false;
};
constexpr RealRange kRealRanges[] = {
    {"model.config.norm_epsilon", 0, 1, true, true},
    {"model.config.rope_theta", 1, 1e12, true},
    {"model.config.embd_pdrop", 0, 1, false, true},
    {"model.config.attn_pdrop", 0, 1, false, true},
    {"model.config.resid_pdrop", 0, 1, false, true},
    {"model.config.initializer_range", 0, 10, true},
    {"data.validation_fraction", 0, 1, false, true},
    {"optimizer.learning_rate", 0, 1000},
    {"optimizer.min_learning_rate", 0, 1000},
    {"optimizer.beta1", 0, 1, false, true},
    {"optimizer.beta2", 0, 1, false, true},
    {"optimizer.epsilon", 0, 1, true},
    {"optimizer.weight_decay", 0, 1000},
    {"optimizer.gradient_clip_norm", 0, 1e30},
    {"runtime.deadline_seconds", 0, 86400, true},
    {"generation.temperature", 0, 1000},
    {"compression.link_gbits", 0, 100000},
    {"resources.time_limit_seconds", 0, 1e9},
};

struct Choice {
  absl::string_view path;
  std::array<absl::string_view, 4> values;  // unused ones empty
};
constexpr Choice kChoices[] = {
    {"model.config.model_type", {"gpt2", "llama"}},
    {"data.tokenizer", {"char", "byte"}},
    {"data.order", {"random", "shuffled", "sequential"}},
    {"training.nonfinite_policy", {"stop", "skip"}},
    {"training.dtype", {"f32", "bf16", "f64"}},
    {"training.gradient_transfer", {"f32", "bf16"}},
    {"optimizer.schedule", {"cosine", "linear", "constant"}},
    {"parallelism.schedule", {"gpipe", "1f1b", "interleaved", "zb-h1"}},
    {"offload.optimizer_state", {"none", "host", "file"}},
    {"offload.activations", {"none", "host", "file"}},
    {"runtime.kernels", {"cpu", "reference"}},
    {"resources.on_lost_node", {"restart", "wait"}},
    {"compression.data_parallel.mode", {"off", "on", "auto"}},
    {"compression.pipeline.mode", {"off", "on", "auto"}},
};

void Add(Faults& faults, absl::string_view path, std::string message) {
  faults.push_back({std::string(path), std::move(message)});
}

void IntegersInRange(const v1::JobSpec& spec, Faults& faults) {
  for (const IntegerRange& range : kIntegerRanges) {
    const FieldRef field = FindField(spec, range.path);
    if (!field.present) continue;
    const int64_t value = field.owner->GetReflection()->GetInt64(*field.owner, field.field);
    if (value >= range.least && value <= range.most) continue;
    Add(faults, range.path,
        absl::StrCat(value, " is out of range, expected ", range.least, " to ", range.most,
                     range.also));
  }
}

void RealsInRange(const v1::JobSpec& spec, Faults& faults) {
  for (const RealRange& range : kRealRanges) {
    const FieldRef field = FindField(spec, range.path);
    if (!field.present) continue;
    const double value = field.owner->GetReflection()->GetDouble(*field.owner, field.field);
    const bool above = range.open_least ? value > range.least : value >= range.least;
    const bool below = range.open_most ? value < range.most : value <= range.most;
    if (above && below) continue;
    Add(faults, range.path,
        absl::StrCat(value, " is out of range, expected ", range.least,
                     range.open_least ? " < x " : " <= x ",
                     range.open_most ? "< " : "<= ", range.most));
  }
}

void ChoicesKnown(const v1::JobSpec& spec, Faults& faults) {
  for (const Choice& choice : kChoices) {
    const FieldRef field = FindField(spec, choice.path);
    if (!field.present) continue;
    const std::string value = field.owner->GetReflection()->GetString(*field.owner, field.field);
    if (!value.empty() &&
        std::find(choice.values.begin(), choice.values.end(), value) != choice.values.end()) {
      continue;
    }
    std::vector<absl::string_view> legal(choice.values.begin(),
                                         std::find(choice.values.begin(), choice.values.end(), ""));
    Add(faults, choice.path,
        absl::StrCat("\"", Printable(value), "\" is not known, expected ",
                     absl::StrJoin(legal, ", ")));
  }
}

void NameFitsAFolder(const v1::JobSpec& spec, Faults& faults) {
  const std::string& name = spec.name();
  const bool legal = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
  if (legal && !name.empty() && name.size() <= 64 && name[0] != '.') return;
  Add(faults, "name",
      absl::StrCat("\"", Printable(name),
                   "\" cannot name a run folder, expected 1 "
                   "to 64 letters, digits, '-', '_' and '.', not beginning with "
                   "'.'"));
}

void ModelIsGiven(const v1::JobSpec& spec, Faults& faults) {
  if (spec.model().config().has_model_type()) return;
  Add(faults, "model",
      "no model; give config_path: config.json, or config: {model_type: gpt2, ...} (gpt2 or "
      "llama)");
}

void DataIsGiven(const v1::JobSpec& spec, Faults& faults) {
  if (spec.data().text_files().empty()) {
    Add(faults, "data.text_files", "no text to train on; give text_files: [input.txt]");
  }
}

void PathsAreUsable(const v1::JobSpec& spec, Faults& faults) {
  const auto check = [&](const std::string& path, const std::string& value) {
    if (value.empty()) {
      Add(faults, path, "an empty path; give one, or remove the line");
    } else if (std::any_of(value.begin(), value.end(),
                           [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
      Add(faults, path, absl::StrCat("\"", Printable(value), "\" holds control characters"));
    } else if (value.size() > 4000) {
      Add(faults, path, "longer than 4000 bytes");
    }
  };
  for (int i = 0; i < spec.data().text_files_size(); ++i) {
    check(absl::StrCat("data.text_files[", i, "]"), spec.data().text_files(i));
  }
  check("runtime.runs_directory", spec.runtime().runs_directory());
  if (spec.offload().has_directory()) check("offload.directory", spec.offload().directory());
  if (!spec.checkpoint().has_directory()) return;
  check("checkpoint.directory", spec.checkpoint().directory());
  const auto folder = [](std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
  };
  if (folder(spec.checkpoint().directory()) == folder(spec.runtime().runs_directory())) {
    Add(faults, "checkpoint.directory",
        "the same folder as runtime.runs_directory; give a folder of its own, or remove the line "
        "to keep checkpoints in the run folder");
  }
}

// The sizes that rules about heads divide and multiply.
bool HeadsInRange(const v1::ModelConfig& model) {
  return model.hidden_size() >= 1 && model.hidden_size() <= (1 << 20) &&
         model.num_attention_heads() >= 1 && model.num_attention_heads() <= (1 << 16) &&
         model.num_key_value_heads() >= 1 && model.num_key_value_heads() <= (1 << 16);
}

void HeadsDivide(const v1::JobSpec& spec, Faults& faults) {
  const v1::ModelConfig& model = spec.model().config();
  const int64_t heads = model.num_attention_heads();
  const int64_t groups = model.num_key_value_heads();
  if (!HeadsInRange(model)) return;
  if (heads % groups != 0) {
    std::vector<int64_t> legal;
    for (int64_t i = 1; i <= heads; ++i) {
      if (heads % i == 0) legal.push_back(i);
    }
    Add(faults, "model.config.num_key_value_heads",
        absl::StrCat(groups, " does not divide num_attention_heads ", heads, ", expected one of ",
                     absl::StrJoin(legal, ", ")));
  }
  if (!model.has_head_dim() && model.hidden_size() % heads != 0) {
    Add(faults, "model.config.num_attention_heads",
        absl::StrCat(heads, " does not divide hidden_size ", model.hidden_size(),
                     "; choose a divisor, the nearest hidden_size is ",
                     std::max<int64_t>(1, (model.hidden_size() + heads / 2) / heads) * heads,
                     model.model_type() == "llama" ? ", or give head_dim" : ""));
  }
}

void Gpt2Shape(const v1::JobSpec& spec, Faults& faults) {
  const v1::ModelConfig& model = spec.model().config();
  if (model.model_type() != "gpt2" || !HeadsInRange(model)) return;
  if (model.num_key_value_heads() != model.num_attention_heads()) {
    Add(faults, "model.config.num_key_value_heads",
        absl::StrCat("gpt2 has no grouped heads, expected ", model.num_attention_heads(),
                     "; remove the line, or use model_type: llama"));
  }
  const int64_t heads = model.num_attention_heads();
  // Divided, since head_dim may be any number.
  const bool divides = model.hidden_size() % heads == 0;
  if (model.has_head_dim() && (!divides || model.head_dim() != model.hidden_size() / heads)) {
    Add(faults, "model.config.head_dim",
        absl::StrCat("gpt2 needs num_attention_heads ", heads, " x head_dim = hidden_size ",
                     model.hidden_size(), ", got head_dim ", model.head_dim(),
                     divides ? "; remove the line" : "; choose a divisor of hidden_size"));
  }
  if (spec.data().sequence_length() > model.max_position_embeddings()) {
    Add(faults, "data.sequence_length",
        absl::StrCat(
            spec.data().sequence_length(), " is longer than the model's max_position_embeddings ",
            model.max_position_embeddings(), ", expected 1 to ", model.max_position_embeddings()));
  }
}

void LlamaShape(const v1::JobSpec& spec, Faults& faults) {
  const v1::ModelConfig& model = spec.model().config();
  if (model.model_type() != "llama") return;
  if (model.head_dim() % 2 != 0) {
    Add(faults, "model.config.head_dim",
        absl::StrCat(model.head_dim(), " is odd, but the rotary embedding turns pairs; expected ",
                     "an even number"));
  }
  if (model.bias()) {
    Add(faults, "model.config.bias", "llama has no biases, expected false; remove the line");
  }
  const std::pair<const char*, double> dropouts[] = {{"embd_pdrop", model.embd_pdrop()},
                                                     {"attn_pdrop", model.attn_pdrop()},
                                                     {"resid_pdrop", model.resid_pdrop()}};
  for (const auto& [name, value] : dropouts) {
    if (value == 0) continue;
    Add(faults, absl::StrCat("model.config.", name),
        "llama has no dropout, expected 0; remove the line");
  }
}

void ScheduleOfLearningRate(const v1::JobSpec& spec, Faults& faults) {
  const v1::OptimizerSpec& optimizer = spec.optimizer();
  if (optimizer.decay_steps() >= 1 && optimizer.warmup_steps() > optimizer.decay_steps()) {
    Add(faults, "optimizer.warmup_steps",
        absl::StrCat(optimizer.warmup_steps(), " is more than decay_steps ",
                     optimizer.decay_steps(), ", expected 0 to ", optimizer.decay_steps(),
                     optimizer.decay_steps() == spec.training().steps()
                         ? "; decay_steps is training.steps where it is not set: lower "
                           "warmup_steps as well, or set decay_steps"
                         : ""));
  }
  if (optimizer.learning_rate() >= 0 && optimizer.min_learning_rate() > optimizer.learning_rate()) {
    Add(faults, "optimizer.min_learning_rate",
        absl::StrCat(optimizer.min_learning_rate(), " is more than learning_rate ",
                     optimizer.learning_rate(), ", expected 0 to ", optimizer.learning_rate()));
  }
}

void BatchDivides(const v1::JobSpec& spec, Faults& faults) {
  const int64_t global = spec.training().global_batch_size();
  if (global < 1) return;
  if (spec.training().micro_batch_size() > global) {
    Add(faults, "training.micro_batch_size",
        absl::StrCat(spec.training().micro_batch_size(), " is more than global_batch_size ", global,
                     ", expected 1 to ", global));
  }
  if (spec.parallelism().data_parallel_size() > global) {
    Add(faults, "parallelism.data_parallel_size",
        absl::StrCat(spec.parallelism().data_parallel_size(),
                     " replicas cannot share a global_batch_size of ", global, ", expected 1 to ",
                     global, " (or 0: from the ranks)"));
  }
}

void TensorSplit(const v1::JobSpec& spec, Faults& faults) {
  const v1::ModelConfig& model = spec.model().config();
  const int64_t tensor = spec.parallelism().tensor_parallel_size();
  const std::pair<const char*, int64_t> limits[] = {
      {"num_key_value_heads", model.num_key_value_heads()},
      {"intermediate_size", model.intermediate_size()},
      {"vocab_size", model.vocab_size()}};
  for (const auto& [name, limit] : limits) {
    if (limit < 1 || tensor <= limit) continue;
    Add(faults, "parallelism.tensor_parallel_size",
        absl::StrCat(tensor, " ranks cannot share ", name, " ", limit, ", expected 1 to ", limit));
  }
  if (spec.parallelism().sequence_parallel() && tensor == 1) {
    Add(faults, "parallelism.sequence_parallel",
        "shards over the tensor group, which has one rank; set tensor_parallel_size to 2 or more, "
        "or sequence_parallel to false");
  }
}

void PiecesOfState(const v1::JobSpec& spec, Faults& faults) {
  const int64_t bytes = spec.offload().piece_bytes();
  if (bytes < 1 || bytes >= 1024) return;
  Add(faults, "offload.piece_bytes",
      absl::StrCat(bytes,
                   " is too small, expected 1024 or more, or 0: from the size of the state"));
}

void SnapshotsAreOfStateInMemory(const v1::JobSpec& spec, Faults& faults) {
  const std::string& where = spec.offload().optimizer_state();
  if (!spec.snapshots().every_step() || where.empty() || where == "none") return;
  Add(faults, "snapshots.every_step",
      absl::StrCat("true, but offload.optimizer_state: ", where,
                   " puts the state where it has one slot; set that to none, or this to false"));
}

// Under sequence parallelism each rank of the tensor group holds some rows of a micro-batch.
void RowsForEachRank(const v1::JobSpec& spec, Faults& faults) {
  if (!spec.parallelism().sequence_parallel()) return;
  const int64_t tensor = spec.parallelism().tensor_parallel_size();
  const int64_t samples = spec.training().micro_batch_size();
  const int64_t tokens = spec.data().sequence_length();
  constexpr int64_t kMost = 1 << 24;
  if (samples < 1 || samples > kMost || tokens < 1 || tokens > kMost) return;
  if (tensor > (1 << 16) || samples * tokens >= tensor) return;
  Add(faults, "parallelism.sequence_parallel",
      absl::StrCat(tensor, " tensor ranks cannot share the rows of a micro-batch, ",
                   "micro_batch_size ", samples, " x sequence_length ", tokens, " = ",
                   samples * tokens, "; raise one of them, lower tensor_parallel_size, or set ",
                   "sequence_parallel to false"));
}

void VirtualStages(const v1::JobSpec& spec, Faults& faults) {
  const v1::ParallelismSpec& parallelism = spec.parallelism();
  const bool interleaved = parallelism.schedule() == "interleaved";
  const int64_t stages = parallelism.virtual_stages();
  if (interleaved && stages == 1) {
    Add(faults, "parallelism.virtual_stages",
        "the interleaved schedule needs 2 or more; remove the line for 2, or use schedule: 1f1b");
  }
  if (!interleaved && stages > 1) {
    Add(faults, "parallelism.virtual_stages",
        absl::StrCat(stages, " needs schedule: interleaved, got schedule: ",
                     Printable(parallelism.schedule()), "; expected 1"));
  }
  if ((interleaved || stages > 1) && parallelism.pipeline_parallel_size() == 1) {
    Add(faults, interleaved ? "parallelism.schedule" : "parallelism.virtual_stages",
        "virtual stages need a pipeline; set pipeline_parallel_size to 2 or more, or use "
        "schedule: 1f1b");
  }
}

void LayersCoverStages(const v1::JobSpec& spec, Faults& faults) {
  const v1::ParallelismSpec& parallelism = spec.parallelism();
  const int64_t layers = spec.model().config().num_hidden_layers();
  const int64_t pipeline = parallelism.pipeline_parallel_size();
  const int64_t per_rank = parallelism.virtual_stages();
  if (layers < 1 || pipeline < 1 || per_rank < 1 || pipeline > (1 << 16) || per_rank > 64) return;
  const int64_t stages = pipeline * per_rank;
  if (stages > layers) {
    const std::string product =
        per_rank > 1 ? absl::StrCat(" x ", per_rank, " virtual stages = ", stages) : "";
    const int64_t most = layers / per_rank;
    Add(faults, "parallelism.pipeline_parallel_size",
        absl::StrCat(pipeline, product, " stages of at least one layer each do not fit ", layers,
                     " layers, expected ",
                     most >= 1 ? absl::StrCat("1 to ", most) : "fewer virtual_stages"));
  }
  if (parallelism.layers_per_stage().empty()) return;
  const std::string path = "parallelism.layers_per_stage";
  int64_t sum = 0;
  for (int i = 0; i < parallelism.layers_per_stage_size(); ++i) {
    const int64_t count = parallelism.layers_per_stage(i);
    if (count < 1 || count > 10000) {
      Add(faults, absl::StrCat(path, "[", i, "]"),
          absl::StrCat(count, " is out of range, expected 1 to ", layers));
      return;
    }
    sum += count;
  }
  if (parallelism.layers_per_stage_size() != stages) {
    Add(faults, path,
        absl::StrCat(parallelism.layers_per_stage_size(), " entries for ", stages,
                     " virtual stages (pipeline_parallel_size ", pipeline, " x virtual_stages ",
                     per_rank, "), expected ", stages));
  } else if (sum != layers) {
    Add(faults, path,
        absl::StrCat("the entries add up to ", sum, ", expected num_hidden_layers ", layers));
  }
}

void RecomputeIsOfLayers(const v1::JobSpec& spec, Faults& faults) {
  const auto& modes = spec.parallelism().recompute();
  const std::string path = "parallelism.recompute";
  for (int i = 0; i < modes.size(); ++i) {
    if (modes[i] == "none" || modes[i] == "selective" || modes[i] == "full") continue;
    Add(faults, modes.size() == 1 ? path : absl::StrCat(path, "[", i, "]"),
        absl::StrCat("\"", Printable(modes[i]), "\" is not known, expected none, selective, full",
                     absl::StrContains(modes[i], ',')
                         ? absl::StrCat("; a list is written [", Printable(modes[i]), "]")
                         : ""));
    return;
  }
  const int64_t layers = spec.model().config().num_hidden_layers();
  if (modes.size() <= 1 || layers < 1 || modes.size() == layers) return;
  Add(faults, path,
      absl::StrCat(modes.size(), " entries for ", layers,
                   " layers; give one for all, or one for each"));
}

void DtypeHasKernels(const v1::JobSpec& spec, Faults& faults) {
  if (spec.training().dtype() == "f64" && spec.runtime().kernels() == "cpu") {
    Add(faults, "runtime.kernels",
        "cpu has no f64 kernels; set runtime.kernels: reference, or training.dtype: f32");
  }
}

// Traces lie in the run, one after the other.
void TracesAreInTheRun(const v1::JobSpec& spec, Faults& faults) {
  const v1::RuntimeSpec& runtime = spec.runtime();
  const int64_t steps = spec.training().steps(), length = runtime.trace_steps();
  if (runtime.trace_at().empty() || steps < 1 || steps > kBillion) return;
  constexpr int kMost = 1000;
  if (length == 0 || runtime.trace_at_size() > kMost) {
    Add(faults, "runtime.trace_at",
        length == 0 ? "chooses steps, but trace_steps is 0; set trace_steps to 1 or more, or "
                      "remove the line"
                    : absl::StrCat(runtime.trace_at_size(), " traces, expected at most ", kMost));
    return;
  }
  int64_t least = 1;
  for (int i = 0; i < runtime.trace_at_size(); ++i) {
    const int64_t at = runtime.trace_at(i);
    const std::string path = absl::StrCat("runtime.trace_at[", i, "]");
    if (at < 1 || at > steps) {
      Add(faults, path, absl::StrCat(at, " is out of range, expected 1 to training.steps ", steps));
      return;
    }
    if (at < least) {
      Add(faults, path,
          absl::StrCat(at, " begins before the ", length, " steps from ", runtime.trace_at(i - 1),
                       " are over, expected ", least, " or more; give rising steps that lie ",
                       "trace_steps apart, or lower trace_steps"));
      return;
    }
    least = at + std::max<int64_t>(length, 1);
  }
}

void PromptFits(const v1::JobSpec& spec, Faults& faults) {
  if (spec.generation().prompt().empty() && spec.generation().max_new_tokens() > 0) {
    Add(faults, "generation.prompt",
        "empty; give at least one character, or max_new_tokens: 0 to generate nothing");
  }
}

using Rule = void (*)(const v1::JobSpec&, Faults&);
constexpr Rule kRules[] = {
    IntegersInRange,      RealsInRange,        ChoicesKnown,
    NameFitsAFolder,      ModelIsGiven,        DataIsGiven,
    PathsAreUsable,       HeadsDivide,         Gpt2Shape,
    LlamaShape,           BatchDivides,        ScheduleOfLearningRate,
    TensorSplit,          RowsForEachRank,     VirtualStages,
    LayersCoverStages,    DtypeHasKernels,     PromptFits,
    CompressionBounds,    CompressionNeedsF32, RanksFillTheMesh,
    NodesAreNames,        TracesAreInTheRun,   RecomputeIsOfLayers,
    GradientTransferFits, PiecesOfState,       SnapshotsAreOfStateInMemory,
};

bool PlanFollowsFrom(absl::string_view path) {
  return absl::StartsWith(path, "model.config.") || absl::StartsWith(path, "parallelism.") ||
         absl::StartsWith(path, "compression.") || absl::StartsWith(path, "offload.") ||
         absl::StartsWith(path, "snapshots.") || path == "model" ||
         path == "data.sequence_length" || path == "training.global_batch_size" ||
         path == "training.micro_batch_size" || path == "training.dtype" ||
         path == "training.gradient_transfer" || path == "training.loss_tile_rows";
}

}  // namespace

std::vector<Fault> Validate(const v1::JobSpec& spec) {
  Faults faults;
  for (Rule rule : kRules) rule(spec, faults);
  return faults;
}

std::vector<Fault> ValidateForPlan(const v1::JobSpec& spec) {
  Faults faults;
  for (const IntegerRange& range : kIntegerRanges) {
    if (range.least < 1 || !PlanFollowsFrom(range.path) || FindField(spec, range.path).present) {
      continue;
    }
    Add(faults, range.path,
        absl::StrCat("absent, expected ", range.least, " to ", range.most,
                     "; apply the defaults before planning"));
  }
  if (!faults.empty()) return faults;  // the rules would speak of the zeros
  for (Fault& fault : Validate(spec)) {
    if (PlanFollowsFrom(fault.path)) faults.push_back(std::move(fault));
  }
  return faults;
}

}  // namespace trireme::spec
