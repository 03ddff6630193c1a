#include "runtime/model/model.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/model/builder.h"

namespace trireme::model {

absl::StatusOr<graph::ModelGraph> BuildModel(const v1::ModelConfig& config) {
  if (config.vocab_size() <= 0) {
    return absl::InvalidArgumentError(
        "model.config.vocab_size: must be positive here; it is taken from the tokenizer of the "
        "data before planning");
  }
  if (config.model_type() == "gpt2") return BuildGpt2(config);
  if (config.model_type() == "llama") return BuildLlama(config);
  return absl::InvalidArgumentError(absl::StrCat("model.config.model_type: unknown family '",
                                                 config.model_type(), "', expected gpt2 or llama"));
}

double TrainingFlopsPerToken(const graph::ModelGraph& graph, const v1::ModelConfig& config,
                             int64_t sequence_length) {
  int64_t counted = graph.ParameterCount();
  for (const graph::Node& node : graph.nodes) {
    const bool lookup =
        node.op == graph::OpKind::kEmbedding || node.op == graph::OpKind::kPositionEmbedding;
    if (!lookup || node.weight == graph.tied) continue;
    counted -= layout::Box::Whole(graph.parameters[node.weight].shape).elements();
  }
  const double attention = 12.0 * static_cast<double>(config.num_hidden_layers()) *
                           static_cast<double>(config.num_attention_heads() * config.head_dim()) *
                           static_cast<double>(sequence_length);
  return 6.0 * static_cast<double>(counted) + attention;
}

}  // namespace trireme::model
