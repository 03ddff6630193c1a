// `trireme-worker generate`: continues a text from a checkpoint made on any layout.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>

#include "runtime/base/exit_code.h"
#include "runtime/comm/communicator.h"

namespace trireme::worker {

struct GenerationOptions {
  std::string checkpoint;
  std::string prompt = "\n";
  int64_t tokens = 200;
  double temperature = 0.8;
  int64_t top_k = 0;
  uint64_t seed = 1337;
  bool json = false;  // {"prompt", "text", "tokens", "stopped"} at the end, not text as it comes
  std::FILE* out = stdout;
};

void AddGenerationOptions(CLI::App& app, GenerationOptions& options);
// Collective; rank 0 writes prompt and text to `out`.
base::ExitCode RunGeneration(const GenerationOptions& options, comm::Fabric& fabric);

}  // namespace trireme::worker
