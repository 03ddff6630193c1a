// The vocabulary taken from the text, and a plan in one line.
#include "coordinator/planning/job_planning.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/plan/offload.h"
#include "runtime/report/plan_view.h"
#include "runtime/spec/job_spec.h"

namespace trireme::coordinator {

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

static absl::Status CheckBytes(const data::DatasetOptions& options, uint64_t most) {
  if (most == 0 || options.tokenizer == "byte") return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint64_t bytes, data::BytesOf(options));
  if (bytes <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "data.text_files: they have {} bytes together; to find the characters of a text all of it is "
      "read, and the daemon reads {} at most for one job (--max-text-bytes): set data.tokenizer to "
      "byte, for which no text is read, give less text, or ask who runs the daemon for more",
      bytes, most));
}

// Who asks for a job is told what its text's disk says now; another attempt may fare better.
static absl::Status AsItIsNow(const absl::Status& status) {
  return absl::IsUnavailable(status) ? absl::FailedPreconditionError(base::MessageOf(status))
                                     : status;
}

absl::Status ResolveVocabulary(v1::JobSpec& job, const TextBounds& bounds, uint64_t* text_bytes) {
  data::DatasetOptions options = DatasetOptionsOf(job);
  options.links = bounds.links;
  options.go_on = bounds.go_on;
  RETURN_IF_ERROR(AsItIsNow(CheckBytes(options, bounds.most_bytes)));
  const absl::StatusOr<data::SurveyedText> text = data::SurveyText(options);
  if (!text.ok()) return AsItIsNow(text.status());
  const auto& tokenizer = text->tokenizer;
  if (text_bytes != nullptr) *text_bytes = text->dataset_bytes;
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
  if (job.resources().ranks() > 0) return static_cast<int>(job.resources().ranks());
  const auto& parallel = job.parallelism();
  return static_cast<int>(std::max<int64_t>(1, parallel.data_parallel_size()) *
                          std::max<int64_t>(1, parallel.tensor_parallel_size()) *
                          std::max<int64_t>(1, parallel.pipeline_parallel_size()));
}

v1::JobSpec CurrentSpec(const v1::Job& job) {
  v1::JobSpec spec = job.spec();
  spec::ApplyDefaults(spec);
  return spec;
}

std::string OneLine(const v1::Plan& plan) {
  uint64_t most_bytes = 0;
  for (const auto& stage : plan.stages())
    most_bytes = std::max(most_bytes, plan::MemoryBytes(stage));
  const auto& mesh = plan.mesh();
  const uint32_t ranks = mesh.pipeline() * mesh.data() * mesh.tensor();
  return fmt::format("{} = {} pipeline x {} data x {} tensor, {}, bubble {:.0f} %, {} a rank",
                     base::Counted(ranks, "rank"), mesh.pipeline(), mesh.data(), mesh.tensor(),
                     plan.schedule(), plan.bubble() * 100, report::ReadableBytes(most_bytes));
}

}  // namespace trireme::coordinator
