// The parameters of a model as Hugging Face's files hold them: same bytes in the same order as
// ours, under a name of theirs and with heads folded into rows or columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::checkpoint {

struct ExportedTensor {
  std::string name;            // in the checkpoint
  std::vector<int64_t> shape;  // likewise
  std::string exported_name;
  std::vector<int64_t> exported_shape;
  bool of_vocabulary = false;  // a row for each token: rows beyond the vocabulary are padding
};

// Of a complete config, in the order of the model; a head that is tied to the embedding has no
// tensor. InvalidArgument: an unknown family.
absl::StatusOr<std::vector<ExportedTensor>> ExportedTensors(const v1::ModelConfig& config);

}  // namespace trireme::checkpoint
