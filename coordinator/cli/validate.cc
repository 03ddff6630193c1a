// `trireme validate`: every fault of a job file at once, and the data it names.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/job_loading.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "runtime/base/text.h"

namespace trireme::cli {

namespace {

// On how many ranks a job runs: replicas are fixed, or as many as have a sample each.
struct RankRange {
  int64_t least = 1, most = 1, step = 1;
};

RankRange RanksFor(const v1::JobSpec& job) {
  const v1::ParallelismSpec& parallelism = job.parallelism();
  const int64_t inner = parallelism.tensor_parallel_size() * parallelism.pipeline_parallel_size();
  const int64_t given = parallelism.data_parallel_size();
  if (given > 0) return {inner * given, inner * given, inner};
  return {inner, inner * job.training().global_batch_size(), inner};
}

std::string TextOf(const RankRange& ranks) {
  if (ranks.least == ranks.most) return base::Counted(ranks.most, "rank");
  if (ranks.step == 1) return fmt::format("1 to {} ranks", ranks.most);
  return fmt::format("{} to {} ranks in steps of {}", ranks.least, ranks.most, ranks.step);
}

}  // namespace

int RunValidate(const ValidateOptions& options) {
  auto job = LoadResolvedJob(options.job, options.overrides);
  if (!job.ok()) return PrintError(job.status());
  if (const absl::Status data = coordinator::ResolveVocabulary(*job); !data.ok())
    return PrintError(data);
  const int64_t tokens = job->model().config().vocab_size();
  const RankRange ranks = RanksFor(*job);
  if (options.json) {
    PrintJsonObject(
        {{"valid", true},
         {"name", job->name()},
         {"vocab_size", tokens},
         {"ranks", {{"least", ranks.least}, {"most", ranks.most}, {"step", ranks.step}}}});
    return kOk;
  }
  std::printf("%s: valid (vocabulary of %lld tokens, %s)\n", options.job.c_str(),
              static_cast<long long>(tokens), TextOf(ranks).c_str());
  return kOk;
}

}  // namespace trireme::cli
