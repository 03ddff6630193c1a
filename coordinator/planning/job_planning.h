// What lies between a job and its plan: the text decides the vocabulary, and the rules that had to
// wait for it are applied.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/dataset.h"
#include "trireme/v1/job.pb.h"
#include "trireme/v1/job_spec.pb.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::coordinator {

data::DatasetOptions DatasetOptionsOf(const v1::JobSpec& job);

// `job` is of somebody else, for whom nobody waits for ever.
struct TextBounds {
  base::Links links = base::Links::kFollow;  // on the way to the text
  // Of all its text, where that must be read to find its characters; 0: any number.
  uint64_t most_bytes = 0;
  std::function<absl::Status(const std::string& file)> go_on = {};  // as of data::DatasetOptions
};

// Reads the text once, but of the byte tokenizer its length alone: checks that it is long enough
// and that its tokenizer knows the prompt, sets a vocab_size of 0 and applies the rules that had to
// wait for it; a vocab_size smaller than the tokenizer's is an error, as is text beyond the bounds.
// `text_bytes`, if given: what the text takes of the memory of each rank. Blocks on the disk.
absl::Status ResolveVocabulary(v1::JobSpec& job, const TextBounds& bounds = {},
                               uint64_t* text_bytes = nullptr);

// InvalidArgument "FIELD: ..." if `tokenizer` does not know a character of `prompt`. The default
// prompt, a line feed, is allowed anyway: where the text has none, any token begins the sample.
absl::Status CheckPrompt(const std::string& prompt, const data::Tokenizer& tokenizer,
                         const std::string& field);

// `ranks`; if that is 0 resources.ranks, and if that is 0 too the product of the parallel sizes.
int RanksOf(const v1::JobSpec& job, int ranks);

// What a stored job asks for, in the words of this program: fields that were not known yet when the
// job was taken have their defaults, as they will have for its ranks.
v1::JobSpec CurrentSpec(const v1::Job& job);

struct PlannedJob {
  v1::JobSpec job;
  int ranks = 1;
  v1::Plan plan;
};

// "4 ranks = 2 pipeline x 1 data x 2 tensor, 1f1b, bubble 12 %, at most 35.0 MiB a rank".
std::string OneLine(const v1::Plan& plan);

}  // namespace trireme::coordinator
