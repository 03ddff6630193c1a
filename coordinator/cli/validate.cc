// `trireme validate`: every fault of a job file at once, and the data it names.
#include <cstdio>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/print_error.h"

namespace trireme::cli {

int RunValidate(const ValidateOptions& options) {
  auto job = LoadResolvedJob(options.job, options.overrides);
  if (!job.ok()) return PrintError(job.status());
  if (const absl::Status data = ResolveVocabulary(*job); !data.ok()) return PrintError(data);
  std::printf("%s: valid (vocabulary of %lld tokens, %d ranks or a multiple)\n",
              options.job.c_str(), static_cast<long long>(job->model().config().vocab_size()),
              RanksOf(*job, 0));
  return kOk;
}

}  // namespace trireme::cli
