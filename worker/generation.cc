#include "worker/generation.h"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/reader.h"
#include "runtime/base/status_macros.h"
#include "runtime/spec/job_spec.h"
#include "worker/session.h"
#include "worker/stop_signal.h"

namespace trireme::worker {

namespace {

// Generation reads no samples: only the vocabulary counts.
class VocabularyOnly : public data::Dataset {
 public:
  explicit VocabularyOnly(std::unique_ptr<data::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}
  const data::Tokenizer& tokenizer() const override { return *tokenizer_; }
  int64_t samples(data::Split) const override { return 0; }
  int64_t sequence_length() const override { return 0; }
  int64_t tokens(data::Split) const override { return 0; }
  void Read(data::Split, int64_t, std::span<int32_t>) const override {}
  void Fill(data::Split, int64_t, std::span<int32_t>, std::span<int32_t>) const override {}

 private:
  std::unique_ptr<data::Tokenizer> tokenizer_;
};

// The job of the checkpoint, laid over the ranks that are here for one text at a time.
absl::StatusOr<v1::JobSpec> GenerationJob(const checkpoint::Checkpoint& checkpoint, int ranks) {
  ASSIGN_OR_RETURN(v1::JobSpec job, spec::ParseJob(checkpoint.info().job_yaml,
                                                   checkpoint.folder() + "/manifest.json", {}));
  job.mutable_training()->set_global_batch_size(1);
  job.mutable_training()->set_micro_batch_size(1);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.Clear();
  v1::JobSpec defaults;
  *defaults.mutable_model() = job.model();
  spec::ApplyDefaults(defaults);
  parallelism = defaults.parallelism();
  parallelism.set_tensor_parallel_size(ranks);
  return job;
}

absl::Status Generate(const GenerationOptions& options, comm::Fabric& fabric) {
  if (options.checkpoint.empty()) {
    return absl::InvalidArgumentError(
        "--checkpoint: name a checkpoint folder (…/checkpoints/step-00001000)");
  }
  ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint, checkpoint::Open(options.checkpoint));
  ASSIGN_OR_RETURN(auto tokenizer, data::TokenizerFromDescription(checkpoint.info().tokenizer));
  const VocabularyOnly vocabulary(std::move(tokenizer));
  ASSIGN_OR_RETURN(const v1::JobSpec job, GenerationJob(checkpoint, fabric.size()));
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, vocabulary.tokenizer().Encode(options.prompt));
  if (tokens.empty())
    return absl::InvalidArgumentError("--prompt: must hold at least one character");
  ASSIGN_OR_RETURN(const auto session, Session::Open(job, fabric, vocabulary, nullptr));
  RETURN_IF_ERROR(session->Restore(checkpoint, /*with_moments=*/false));
  const int64_t known = vocabulary.tokenizer().vocab_size();
  const bool leader = fabric.rank() == 0;
  if (leader) std::fputs(options.prompt.c_str(), stdout);
  for (int64_t count = 0; count < options.tokens; ++count) {
    ASSIGN_OR_RETURN(const bool go_on, session->engine().AllAgree(!StopRequested()));
    if (!go_on) break;
    ASSIGN_OR_RETURN(const int32_t next,
                     session->engine().NextToken(tokens, {.temperature = options.temperature,
                                                          .top_k = options.top_k,
                                                          .vocabulary = known,
                                                          .seed = options.seed}));
    tokens.push_back(next);
    if (!leader) continue;
    ASSIGN_OR_RETURN(const std::string text,
                     vocabulary.tokenizer().Decode(std::span(&tokens.back(), 1)));
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  if (leader) std::fputs("\n", stdout);
  return absl::OkStatus();
}

}  // namespace

void AddGenerationOptions(CLI::App& app, GenerationOptions& options) {
  app.add_option("--checkpoint", options.checkpoint, "checkpoint folder")->required();
  app.add_option("--prompt", options.prompt, "text to continue")->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens to add")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--temperature", options.temperature, "softmax temperature; 0: greedy")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--top-k", options.top_k, "draw from the k likeliest tokens; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "seed of the draw")->capture_default_str();
}

base::ExitCode RunGeneration(const GenerationOptions& options, comm::Fabric& fabric) {
  const absl::Status status = Generate(options, fabric);
  if (status.ok()) return base::kOk;
  spdlog::error("{}", base::MessageOf(status));
  return base::ExitCodeOf(status);
}

}  // namespace trireme::worker
