// Families: a ModelConfig (Hugging Face names) becomes a ModelGraph with Hugging Face parameter
// names.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::model {

// `config` must be complete (every field set, vocab_size > 0). InvalidArgument names an unknown
// family and the legal ones.
absl::StatusOr<graph::ModelGraph> BuildModel(const v1::ModelConfig& config);

// Model flops of one token of a training step: 6 parameters + 12 L C T (Narayanan et al.
// 2104.04473, appendix, without recompute). Embeddings are lookups and no products, so they do not
// count, but where one is tied to the head, that is a product.
double TrainingFlopsPerToken(const graph::ModelGraph& graph, const v1::ModelConfig& config,
                             int64_t sequence_length);

}  // namespace trireme::model
