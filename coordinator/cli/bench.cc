// `trireme bench`: becomes the worker, which has the kernels that are measured.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/print_error.h"
#include "runtime/base/own_program.h"

namespace trireme::cli {

int RunBench(const BenchOptions& options) {
  std::vector<std::string> arguments = {
      base::ProgramBesideUs("trireme-worker"), "bench", "--dtype=" + options.dtype,
      fmt::format("--threads={}", options.threads), fmt::format("--seconds={}", options.seconds)};
  if (!options.only.empty()) arguments.push_back("--only=" + options.only);
  if (options.json) arguments.emplace_back("--json");
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return PrintError(
      absl::InternalError(fmt::format("cannot start {}: {}", arguments[0], std::strerror(errno))));
}

}  // namespace trireme::cli
