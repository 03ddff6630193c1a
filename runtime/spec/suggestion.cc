#include "runtime/spec/suggestion.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trireme::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Names that peers use for our fields (Megatron-LM, DeepSpeed, torchtitan, nanoGPT, Hugging Face).
struct PeerName {
  absl::string_view peer;
  absl::string_view path;
};
constexpr PeerName kPeerNames[] = {
    {"lr", "optimizer.learning_rate"},
    {"min_lr", "optimizer.min_learning_rate"},
    {"max_iters", "training.steps"},
    {"train_iters", "training.steps"},
    {"max_steps", "training.steps"},
    {"iterations", "training.steps"},
    {"epochs", "training.steps"},
    {"batch_size", "training.global_batch_size"},
    {"train_batch_size", "training.global_batch_size"},
    {"block_size", "data.sequence_length"},
    {"seq_length", "data.sequence_length"},
    {"seq_len", "data.sequence_length"},
    {"dataset", "data.text_files"},
    {"files", "data.text_files"},
    {"warmup_iters", "optimizer.warmup_steps"},
    {"lr_decay_iters", "optimizer.decay_steps"},
    {"grad_clip", "optimizer.gradient_clip_norm"},
    {"clip_grad", "optimizer.gradient_clip_norm"},
    {"max_grad_norm", "optimizer.gradient_clip_norm"},
    {"dp", "parallelism.data_parallel_size"},
    {"tp", "parallelism.tensor_parallel_size"},
    {"pp", "parallelism.pipeline_parallel_size"},
    {"zero", "parallelism.zero_stage"},
    {"cpus", "resources.cpus_per_rank"},
    {"gpus", "resources.gpus_per_rank"},
    {"memory", "resources.memory_mib_per_rank"},
    {"n_embd", "model.config.hidden_size"},
    {"n_layer", "model.config.num_hidden_layers"},
    {"n_head", "model.config.num_attention_heads"},
    {"n_inner", "model.config.intermediate_size"},
    {"n_positions", "model.config.max_position_embeddings"},
    {"n_ctx", "model.config.max_position_embeddings"},
    {"layer_norm_epsilon", "model.config.norm_epsilon"},
    {"rms_norm_eps", "model.config.norm_epsilon"},
    {"precision", "training.dtype"},
    {"communication_data_type", "training.gradient_transfer"},
    {"grad_reduce_dtype", "training.gradient_transfer"},
    {"reduce_dtype", "training.gradient_transfer"},
    {"device", "runtime.kernels"},
    {"eval_interval", "evaluation.every_steps"},
    {"eval_iters", "evaluation.samples"},
    {"save_interval", "checkpoint.every_steps"},
    {"timeout", "runtime.deadline_seconds"},
};

struct Candidate {
  std::string shown;
  double distance;
};

void Collect(const Descriptor& section, const std::string& prefix, absl::string_view name,
             std::vector<Candidate>& out) {
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor* field = section.field(i);
    const std::string shown = prefix + field->name();
    out.push_back({shown, NameDistance(name, field->name())});
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Collect(*field->message_type(), shown + ".", name, out);
    }
  }
}

// The nearest candidate, if near enough for a name of this length.
const Candidate* Nearest(const std::vector<Candidate>& candidates, double limit) {
  const auto nearest = std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  return nearest != candidates.end() && nearest->distance <= limit ? &*nearest : nullptr;
}

double LimitFor(absl::string_view name) {
  return std::max(1.0, static_cast<double>(name.size()) * 0.4);
}

}  // namespace

double NameDistance(absl::string_view word, absl::string_view candidate) {
  const size_t rows = std::min<size_t>(word.size(), 64);
  const size_t columns = candidate.size();
  std::vector<std::vector<size_t>> cost(rows + 1, std::vector<size_t>(columns + 1));
  for (size_t i = 0; i <= rows; ++i) {
    for (size_t j = 0; j <= columns; ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const bool same = word[i - 1] == candidate[j - 1];
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + !same});
      if (i > 1 && j > 1 && word[i - 1] == candidate[j - 2] && word[i - 2] == candidate[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  double best = static_cast<double>(cost[rows][columns]);
  // A prefix of at least four letters, with the rest of the candidate left off.
  for (size_t j = 4; j < columns; ++j) {
    best = std::min(best,
                    static_cast<double>(cost[rows][j]) + 0.25 * static_cast<double>(columns - j));
  }
  return best + static_cast<double>(word.size() - rows);
}

std::string NearestName(absl::string_view word, const std::vector<std::string>& names) {
  std::vector<Candidate> candidates;
  for (const std::string& name : names) candidates.push_back({name, NameDistance(word, name)});
  const Candidate* near = Nearest(candidates, LimitFor(word));
  return near == nullptr ? "" : near->shown;
}

std::string SuggestField(const Descriptor& section, const Descriptor& root,
                         absl::string_view name) {
  std::vector<std::string> names;
  for (int i = 0; i < section.field_count(); ++i) names.push_back(section.field(i)->name());
  std::vector<Candidate> anywhere;
  Collect(root, "", name, anywhere);
  // The very name in another section beats a mere neighbour in this one.
  if (const Candidate* exact = Nearest(anywhere, 0.0)) {
    return absl::StrCat(", did you mean ", exact->shown, "?");
  }
  for (const PeerName& peer : kPeerNames) {
    if (peer.peer == name) return absl::StrCat(", did you mean ", peer.path, "?");
  }
  if (const std::string near = NearestName(name, names); !near.empty()) {
    return absl::StrCat(", did you mean ", near, "?");
  }
  if (const Candidate* near = Nearest(anywhere, LimitFor(name) / 2)) {
    return absl::StrCat(", did you mean ", near->shown, "?");
  }
  return absl::StrCat("; known here: ", absl::StrJoin(names, ", "));
}

}  // namespace trireme::spec
