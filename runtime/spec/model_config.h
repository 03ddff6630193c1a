// The reading of config.json behind ReadModelConfig, with the place of every value kept for later
// faults.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/spec/message_fill.h"
#include "trireme/v1/job_spec.pb.h"

namespace trireme::spec {

struct ModelConfigReading {
  v1::ModelConfig config;
  std::map<std::string, int> lines;  // field of ModelConfig -> line of its key
  std::vector<PlacedFault> faults;   // paths are keys of the file
  std::vector<std::string> warnings;
};

// Reads the file at `path`; `label` stands for it in messages, `order` places its faults among
// others.
ModelConfigReading ReadModelConfigFile(const std::string& path, const std::string& label,
                                       int order);

}  // namespace trireme::spec
