// config.json of a model, in the keys of transformers' GPT2Config and LlamaConfig.
#pragma once

#include <string>

#include "runtime/tensor/dtype.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::checkpoint {

// Of a complete config whose family is known. Read again by spec::ReadModelConfig it gives an equal
// message.
std::string ConfigJson(const v1::ModelConfig& config, tensor::DType dtype);

}  // namespace trireme::checkpoint
