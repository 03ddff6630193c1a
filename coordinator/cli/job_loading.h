// From a job file to a resolved job and its plan, in the order that finds errors before anything
// starts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/dataset.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::cli {

// Loads and validates; warnings go to stderr; every path is absolute, so that the job may be
// written elsewhere.
absl::StatusOr<v1::JobSpec> LoadResolvedJob(const std::string& path,
                                            const std::vector<std::string>& overrides);

data::DatasetOptions DatasetOptionsOf(const v1::JobSpec& job);
// Reads the text once: checks that it is long enough and that its tokenizer knows the prompt, sets
// a vocab_size of 0 and applies the rules that had to wait for it; a vocab_size smaller than the
// tokenizer's is an error.
absl::Status ResolveVocabulary(v1::JobSpec& job);

// InvalidArgument "FIELD: ..." if `tokenizer` does not know a character of `prompt`. The default
// prompt, a line feed, is allowed anyway: where the text has none, any token begins the sample.
absl::Status CheckPrompt(const std::string& prompt, const data::Tokenizer& tokenizer,
                         const std::string& field);

// `ranks`, or the product of the parallel sizes if that is 0.
int RanksOf(const v1::JobSpec& job, int ranks);

struct PlannedJob {
  v1::JobSpec job;
  int ranks = 1;
  v1::Plan plan;
};
enum class TextUse { kNeeded, kOptional };
// kOptional: a text that is not there is only warned of, where the job gives its vocabulary.
absl::StatusOr<PlannedJob> LoadAndPlan(const std::string& path,
                                       const std::vector<std::string>& overrides, int ranks,
                                       TextUse text = TextUse::kNeeded);

// "4 ranks = 2 pipeline x 1 data x 2 tensor, 1f1b, bubble 12 %, at most 35.0 MiB a rank".
std::string OneLine(const v1::Plan& plan);

}  // namespace trireme::cli
