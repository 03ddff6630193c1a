// `trireme generate`: one worker, without mpirun, continues a text.
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "coordinator/cli/checkpoint_folder.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/own_folder.h"
#include "coordinator/cli/print_error.h"

namespace trireme::cli {

int RunGenerate(const GenerateOptions& options) {
  const auto checkpoint = FindCheckpoint(options.checkpoint);
  if (!checkpoint.ok()) return PrintError(checkpoint.status());
  // "--name=value", so that a prompt may begin with a dash.
  const std::vector<std::string> arguments = {WorkerPath(),
                                              "generate",
                                              "--checkpoint=" + *checkpoint,
                                              "--prompt=" + options.prompt,
                                              fmt::format("--tokens={}", options.tokens),
                                              fmt::format("--temperature={}", options.temperature),
                                              fmt::format("--top-k={}", options.top_k),
                                              fmt::format("--seed={}", options.seed)};
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  // One MPI process by itself: no helper processes of Open MPI.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
  execv(argv[0], argv.data());
  return PrintError(
      absl::InternalError(fmt::format("cannot start {}: {}", arguments[0], std::strerror(errno))));
}

}  // namespace trireme::cli
