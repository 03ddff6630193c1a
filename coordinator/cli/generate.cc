// `trireme generate`: one worker, without mpirun, continues a text.
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "checkpoint/client/reader.h"
#include "coordinator/cli/checkpoint_folder.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/print_error.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/spec/job_spec.h"

namespace trireme::cli {
namespace {

constexpr int64_t kTokens = 200;  // if the job generates none

// The checkpoint's job with the options laid over its `generation` and seed, by the job's rules.
absl::StatusOr<v1::JobSpec> ResolveGeneration(const GenerateOptions& options,
                                              const checkpoint::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(v1::JobSpec job, spec::ParseEcho(checkpoint.info().job_yaml,
                                                    checkpoint.folder() + "/manifest.json"));
  v1::GenerationSpec& generation = *job.mutable_generation();
  if (generation.max_new_tokens() == 0) generation.set_max_new_tokens(kTokens);
  if (options.prompt) generation.set_prompt(*options.prompt);
  if (options.tokens) generation.set_max_new_tokens(*options.tokens);
  if (options.temperature) generation.set_temperature(*options.temperature);
  if (options.top_k) generation.set_top_k(*options.top_k);
  if (options.seed) job.set_seed(*options.seed);
  if (generation.prompt().empty()) {
    return absl::InvalidArgumentError("--prompt: empty; give at least one character");
  }
  if (generation.max_new_tokens() < 1) {
    return absl::InvalidArgumentError(fmt::format(
        "--tokens: {} is out of range, expected 1 to 16777216", generation.max_new_tokens()));
  }
  for (const spec::Fault& fault : spec::Validate(job)) {
    for (const auto& [field, flag] :
         {std::pair("max_new_tokens", "--tokens"), std::pair("temperature", "--temperature"),
          std::pair("top_k", "--top-k")}) {
      if (fault.path != std::string("generation.") + field) continue;
      return absl::InvalidArgumentError(fmt::format("{}: {}", flag, fault.message));
    }
  }
  ASSIGN_OR_RETURN(const auto tokenizer,
                   data::TokenizerFromDescription(checkpoint.info().tokenizer));
  RETURN_IF_ERROR(coordinator::CheckPrompt(generation.prompt(), *tokenizer, "--prompt"));
  return job;
}

}  // namespace

int RunGenerate(const GenerateOptions& options) {
  const auto found = FindCheckpoint(options.checkpoint);
  if (!found.ok()) return PrintError(found.status());
  for (const std::string& text : PassedOverTexts(*found)) PrintWarning(text);
  const auto checkpoint = checkpoint::Open(found->folder);
  if (!checkpoint.ok()) return PrintError(checkpoint.status());
  const auto job = ResolveGeneration(options, *checkpoint);
  if (!job.ok()) return PrintError(job.status());
  const v1::GenerationSpec& generation = job->generation();
  // "--name=value", so that a prompt may begin with a dash.
  std::vector<std::string> arguments = {base::ProgramBesideUs("trireme-worker"),
                                        "generate",
                                        "--checkpoint=" + found->folder,
                                        "--prompt=" + generation.prompt(),
                                        fmt::format("--tokens={}", generation.max_new_tokens()),
                                        fmt::format("--temperature={}", generation.temperature()),
                                        fmt::format("--top-k={}", generation.top_k()),
                                        fmt::format("--seed={}", job->seed())};
  if (options.json) arguments.emplace_back("--json");
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  // One MPI process by itself: no helper processes of Open MPI, and no folder of its in TMPDIR,
  // which a killed worker would leave behind.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
  setenv("OMPI_MCA_orte_create_session_dirs", "0", 1);
  execv(argv[0], argv.data());
  return PrintError(
      absl::InternalError(fmt::format("cannot start {}: {}", arguments[0], std::strerror(errno))));
}

}  // namespace trireme::cli
