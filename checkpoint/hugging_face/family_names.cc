#include "checkpoint/hugging_face/family_names.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "runtime/base/status_macros.h"
#include "runtime/model/model.h"

namespace trireme::checkpoint {
namespace {

int64_t Product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin),
                         shape.begin() + static_cast<std::ptrdiff_t>(end), int64_t{1},
                         std::multiplies<>());
}

// Heads are dimensions of their own here; there they are folded into that side of the matrix which
// is cut by heads.
std::vector<int64_t> FoldedShape(std::string_view name, const std::vector<int64_t>& shape) {
  if (name.ends_with(".bias")) return {Product(shape, 0, shape.size())};
  if (shape.size() <= 2) return shape;
  if (name.ends_with(".c_attn.weight") || name.ends_with(".o_proj.weight")) {
    return {shape.front(), Product(shape, 1, shape.size())};
  }
  return {Product(shape, 0, shape.size() - 1), shape.back()};
}

}  // namespace

absl::StatusOr<std::vector<ExportedTensor>> ExportedTensors(const v1::ModelConfig& config) {
  ASSIGN_OR_RETURN(const graph::ModelGraph graph, model::BuildModel(config));
  // Published GPT-2 files hold the body's names without a prefix, which says that there is no head;
  // with a head of its own it is the names of GPT2LMHeadModel.
  const bool prefixed = config.model_type() == "gpt2" && !config.tie_word_embeddings();
  std::vector<ExportedTensor> tensors;
  for (const graph::Parameter& parameter : graph.parameters) {
    ExportedTensor& tensor = tensors.emplace_back();
    tensor.name = parameter.name;
    tensor.shape = parameter.shape;
    const bool head = parameter.name == "lm_head.weight";
    tensor.exported_name = (prefixed && !head ? "transformer." : "") + parameter.name;
    tensor.exported_shape = FoldedShape(parameter.name, parameter.shape);
    tensor.of_vocabulary =
        head || parameter.name == "wte.weight" || parameter.name == "model.embed_tokens.weight";
  }
  return tensors;
}

}  // namespace trireme::checkpoint
