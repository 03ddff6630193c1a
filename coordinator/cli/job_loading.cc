// Job file to resolved job to plan, every path absolute.
#include "coordinator/cli/job_loading.h"

#include <filesystem>

#include "coordinator/cli/print_error.h"
#include "coordinator/launcher/launch_command.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"

namespace trireme::cli {
namespace {

std::string Absolute(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

}  // namespace

absl::StatusOr<v1::JobSpec> LoadResolvedJob(const std::string& path,
                                            const std::vector<std::string>& overrides) {
  std::vector<std::string> warnings;
  ASSIGN_OR_RETURN(v1::JobSpec job, spec::LoadJob(path, overrides, &warnings));
  for (const std::string& warning : warnings) PrintWarning(warning);
  for (std::string& file : *job.mutable_data()->mutable_text_files()) file = Absolute(file);
  job.mutable_runtime()->set_runs_directory(Absolute(job.runtime().runs_directory()));
  if (job.checkpoint().has_directory()) {
    job.mutable_checkpoint()->set_directory(Absolute(job.checkpoint().directory()));
  }
  if (job.offload().has_directory()) {
    job.mutable_offload()->set_directory(Absolute(job.offload().directory()));
  }
  return job;
}

absl::StatusOr<PlannedJob> LoadAndPlan(const std::string& path,
                                       const std::vector<std::string>& overrides, int ranks,
                                       TextUse text) {
  PlannedJob planned;
  ASSIGN_OR_RETURN(planned.job, LoadResolvedJob(path, overrides));
  const absl::Status resolved = coordinator::ResolveVocabulary(planned.job);
  const bool without = text == TextUse::kOptional && absl::IsNotFound(resolved) &&
                       planned.job.model().config().vocab_size() > 0;
  if (!resolved.ok() && !without) return resolved;
  if (without) {
    PrintWarning("planned without the text: " + base::MessageOf(resolved));
  }
  planned.ranks = coordinator::RanksOf(planned.job, ranks);
  // As `trireme run` starts them on this machine. In an allocation the step gives what it gives.
  const bool here = planned.ranks > 0 && !launcher::InAllocation();
  const int threads = here ? launcher::AvailableCores() / planned.ranks : 0;
  ASSIGN_OR_RETURN(planned.plan,
                   plan::MakePlan(plan::ForThreads(planned.job, threads), planned.ranks));
  return planned;
}

}  // namespace trireme::cli
