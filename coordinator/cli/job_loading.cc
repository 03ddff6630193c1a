// Job file to resolved job to plan: every path absolute, the vocabulary taken from the text.
#include "coordinator/cli/job_loading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/plan/planner.h"
#include "runtime/report/plan_view.h"
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
  for (const std::string& warning : warnings) {
    std::fprintf(stderr, "trireme: warning: %s\n", warning.c_str());
  }
  for (std::string& file : *job.mutable_data()->mutable_text_files()) file = Absolute(file);
  job.mutable_runtime()->set_runs_directory(Absolute(job.runtime().runs_directory()));
  if (job.checkpoint().has_directory()) {
    job.mutable_checkpoint()->set_directory(Absolute(job.checkpoint().directory()));
  }
  return job;
}

data::DatasetOptions DatasetOptionsOf(const v1::JobSpec& job) {
  data::DatasetOptions options;
  options.text_files.assign(job.data().text_files().begin(), job.data().text_files().end());
  options.tokenizer = job.data().tokenizer();
  options.sequence_length = job.data().sequence_length();
  options.validation_fraction = job.data().validation_fraction();
  options.order = job.data().order();
  options.seed = job.seed();
  return options;
}

absl::Status ResolveVocabulary(v1::JobSpec& job) {
  ASSIGN_OR_RETURN(const auto tokenizer, data::TokenizerOf(DatasetOptionsOf(job)));
  const int64_t tokens = tokenizer->vocab_size();
  const int64_t given = job.model().config().vocab_size();
  if (given == 0) {
    job.mutable_model()->mutable_config()->set_vocab_size(tokens);
  } else if (given < tokens) {
    return absl::InvalidArgumentError(
        fmt::format("model.config.vocab_size: {} is less than the {} tokens of the text by the {} "
                    "tokenizer; leave it out to take theirs",
                    given, tokens, job.data().tokenizer()));
  }
  std::string faults;
  for (const spec::Fault& fault : spec::Validate(job)) {
    faults += fmt::format("{}{}: {}", faults.empty() ? "" : "\n", fault.path, fault.message);
  }
  if (!faults.empty()) return absl::InvalidArgumentError(faults);
  if (job.generation().max_new_tokens() == 0) return absl::OkStatus();
  return CheckPrompt(job.generation().prompt(), *tokenizer, "generation.prompt");
}

absl::Status CheckPrompt(const std::string& prompt, const data::Tokenizer& tokenizer,
                         const std::string& field) {
  const auto tokens = tokenizer.Encode(prompt);
  if (tokens.ok() || prompt == "\n") return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: {}", field, std::string(tokens.status().message())));
}

int RanksOf(const v1::JobSpec& job, int ranks) {
  if (ranks > 0) return ranks;
  const auto& parallel = job.parallelism();
  return static_cast<int>(std::max<int64_t>(1, parallel.data_parallel_size()) *
                          std::max<int64_t>(1, parallel.tensor_parallel_size()) *
                          std::max<int64_t>(1, parallel.pipeline_parallel_size()));
}

absl::StatusOr<PlannedJob> LoadAndPlan(const std::string& path,
                                       const std::vector<std::string>& overrides, int ranks,
                                       TextUse text) {
  PlannedJob planned;
  ASSIGN_OR_RETURN(planned.job, LoadResolvedJob(path, overrides));
  const absl::Status resolved = ResolveVocabulary(planned.job);
  const bool without = text == TextUse::kOptional && absl::IsNotFound(resolved) &&
                       planned.job.model().config().vocab_size() > 0;
  if (!resolved.ok() && !without) return resolved;
  if (without) {
    std::fprintf(stderr, "trireme: warning: planned without the text: %s\n",
                 base::MessageOf(resolved).c_str());
  }
  planned.ranks = RanksOf(planned.job, ranks);
  ASSIGN_OR_RETURN(planned.plan, plan::MakePlan(planned.job, planned.ranks));
  return planned;
}

std::string OneLine(const v1::Plan& plan) {
  uint64_t most_bytes = 0;
  for (const auto& stage : plan.stages()) most_bytes = std::max(most_bytes, stage.arena_bytes());
  const auto& mesh = plan.mesh();
  const uint32_t ranks = mesh.pipeline() * mesh.data() * mesh.tensor();
  return fmt::format("{} = {} pipeline x {} data x {} tensor, {}, bubble {:.0f} %, {} a rank",
                     base::Counted(ranks, "rank"), mesh.pipeline(), mesh.data(), mesh.tensor(),
                     plan.schedule(), plan.bubble() * 100, report::ReadableBytes(most_bytes));
}

}  // namespace trireme::cli
