// `trireme validate`: every fault of a job file at once, and the data it names.
#include <fmt/format.h>

#include <cstdio>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/print_error.h"
#include "runtime/base/text.h"

namespace trireme::cli {

namespace {

// On how many ranks the job runs: replicas are fixed, or as many as have a sample each.
std::string RankCounts(const v1::JobSpec& job) {
  const v1::ParallelismSpec& parallelism = job.parallelism();
  const int64_t inner = parallelism.tensor_parallel_size() * parallelism.pipeline_parallel_size();
  const int64_t given = parallelism.data_parallel_size();
  const int64_t most = inner * (given > 0 ? given : job.training().global_batch_size());
  if (given > 0 || most == inner) return base::Counted(most, "rank");
  if (inner == 1) return fmt::format("1 to {} ranks", most);
  return fmt::format("{} to {} ranks in steps of {}", inner, most, inner);
}

}  // namespace

int RunValidate(const ValidateOptions& options) {
  auto job = LoadResolvedJob(options.job, options.overrides);
  if (!job.ok()) return PrintError(job.status());
  if (const absl::Status data = coordinator::ResolveVocabulary(*job); !data.ok())
    return PrintError(data);
  std::printf("%s: valid (vocabulary of %lld tokens, %s)\n", options.job.c_str(),
              static_cast<long long>(job->model().config().vocab_size()), RankCounts(*job).c_str());
  return kOk;
}

}  // namespace trireme::cli
