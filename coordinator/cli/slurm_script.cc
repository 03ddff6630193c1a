// `trireme slurm-script`: a job as a batch file for sbatch.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/process/shell_quote.h"
#include "coordinator/slurm/batch_script.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"

namespace trireme::cli {
namespace {

constexpr mode_t kProgram = 0755;

// Paths are meant from here, wherever the script is submitted. That of a config.json is not in the
// resolved job any more.
std::string MadeAbsolute(const std::string& set) {
  const std::string field = "model.config_path=";
  if (set.rfind(field, 0) != 0) return set;
  std::error_code error;
  const auto path = std::filesystem::absolute(set.substr(field.size()), error).lexically_normal();
  return error ? set : field + path.string();
}

// After the overrides, in whatever form they name paths: those of the resolved job.
std::vector<std::string> PathsOf(const v1::JobSpec& job) {
  const std::vector<std::string> files(job.data().text_files().begin(),
                                       job.data().text_files().end());
  std::vector<std::string> paths = {"data.text_files=" + nlohmann::json(files).dump()};
  if (job.checkpoint().has_directory()) {
    paths.push_back("checkpoint.directory=" + nlohmann::json(job.checkpoint().directory()).dump());
  }
  if (job.offload().has_directory()) {
    paths.push_back("offload.directory=" + nlohmann::json(job.offload().directory()).dump());
  }
  return paths;
}

slurm::BatchJob BatchJobOf(const SlurmScriptOptions& options, const PlannedJob& planned) {
  const v1::JobSpec& job = planned.job;
  slurm::BatchJob batch = slurm::BatchJobOf(job, planned.ranks);
  batch.nodes = options.nodes;
  batch.run_folder = job.runtime().runs_directory() + "/" + job.name();
  std::error_code error;
  const auto file = std::filesystem::absolute(options.job, error).lexically_normal();
  batch.worker = {base::ProgramBesideUs("trireme-worker"), "--job", file.string(), "--resume",
                  "auto"};
  for (const std::string& set : options.overrides) {
    batch.worker.insert(batch.worker.end(), {"--set", MadeAbsolute(set)});
  }
  for (const std::string& path :
       options.overrides.empty() ? std::vector<std::string>() : PathsOf(job)) {
    batch.worker.insert(batch.worker.end(), {"--set", path});
  }
  // Else each rank would count the cores of its node.
  if (job.runtime().threads() == 0) {
    batch.worker.insert(batch.worker.end(),
                        {"--set", base::Text("runtime.threads=", batch.cpus_per_rank)});
  }
  return batch;
}

}  // namespace

int RunSlurmScript(const SlurmScriptOptions& options) {
  const auto planned =
      LoadAndPlan(options.job, options.overrides, options.ranks, TextUse::kOptional);
  if (!planned.ok()) return PrintError(planned.status());
  if (planned->job.resources().nodes_size() > 0) {
    PrintWarning(
        "resources.nodes are nodes of a coordinator; for Slurm name them by --sbatch "
        "'--nodelist=...'");
  }
  const auto script =
      slurm::StandaloneScript(BatchJobOf(options, *planned),
                              {options.partition, options.account, options.time, options.sbatch});
  if (!script.ok()) return PrintError(script.status());
  if (!options.out.empty()) {
    const absl::Status written = base::WriteWholeFile(options.out, *script, kProgram);
    if (!written.ok()) return PrintError(written);
  }
  if (options.json) {
    PrintJsonObject({{"script", *script}, {"file", options.out}});
    return kOk;
  }
  if (options.out.empty()) {
    std::fwrite(script->data(), 1, script->size(), stdout);
    return kOk;
  }
  std::printf("submit it with: sbatch %s\n", process::ShellQuote(options.out).c_str());
  return kOk;
}

}  // namespace trireme::cli
