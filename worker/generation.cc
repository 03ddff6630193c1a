#include "worker/generation.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/reader.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/json/json_text.h"
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
  ASSIGN_OR_RETURN(v1::JobSpec job, spec::ParseEcho(checkpoint.info().job_yaml,
                                                    checkpoint.folder() + "/manifest.json"));
  job.mutable_training()->set_global_batch_size(1);
  job.mutable_training()->set_micro_batch_size(1);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.Clear();
  v1::JobSpec defaults;
  *defaults.mutable_model() = job.model();
  spec::ApplyDefaults(defaults);
  parallelism = defaults.parallelism();
  *job.mutable_offload() = defaults.offload();
  parallelism.set_tensor_parallel_size(ranks);
  return job;
}

// A line feed begins a text even where the vocabulary has none: any token does.
absl::StatusOr<std::vector<int32_t>> PromptTokens(const GenerationOptions& options,
                                                  const data::Tokenizer& tokenizer) {
  if (options.prompt.empty()) {
    return absl::InvalidArgumentError("--prompt: empty; give at least one character");
  }
  auto tokens = tokenizer.Encode(options.prompt);
  if (tokens.ok()) return tokens;
  if (options.prompt == "\n") return std::vector<int32_t>{0};
  return absl::InvalidArgumentError(absl::StrCat("--prompt: ", base::MessageOf(tokens.status())));
}

// Files and pipes get the bytes as they are; a terminal gets whole characters, and U+FFFD for what
// is none or would steer it. As JSON it is one line at the end, with U+FFFD for what is no UTF-8.
class TextOut {
 public:
  TextOut(std::FILE* file, bool json) : file_(file), json_(json) {}

  void Prompt(const std::string& text) { json_ ? void(prompt_ = text) : Write(text); }
  void Write(const std::string& text) {
    pending_ += text;
    if (json_) return;
    Put(terminal_ ? base::TakeShowableUtf8(pending_) : std::exchange(pending_, ""));
  }
  void End(size_t tokens, bool stopped) {
    if (!json_) return Put(base::ShowableUtf8(pending_) + "\n");
    const nlohmann::ordered_json line = {
        {"prompt", prompt_}, {"text", pending_}, {"tokens", tokens}, {"stopped", stopped}};
    Put(json_text::Write(line) + "\n");
  }

 private:
  void Put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), file_);
    std::fflush(file_);
  }

  std::FILE* const file_;
  const bool json_;
  const bool terminal_ = isatty(fileno(file_)) == 1;
  std::string prompt_;   // for JSON
  std::string pending_;  // a character's first bytes; for JSON all of the text
};

// Ranks that look at different disks would generate from a mixture of models.
absl::Status AgreeOn(const checkpoint::Checkpoint& checkpoint, comm::Agreement& ranks) {
  std::string guard = checkpoint.guard();
  RETURN_IF_ERROR(ranks.Share(guard, comm::kDiskDeadline));
  if (guard == checkpoint.guard()) return ranks.AllOk(absl::OkStatus(), comm::kDiskDeadline);
  return ranks.AllOk(
      absl::InvalidArgumentError(absl::StrCat(
          checkpoint.folder(), ": rank 0 sees another checkpoint there than this rank, of ",
          "step ", checkpoint.info().step, " here; give a folder that all nodes share")),
      comm::kDiskDeadline);
}

// Damage is told with what there is instead: by manifest and sizes, as a run that resumes by itself
// finds it.
absl::Status NameOlder(const absl::Status& status, const std::string& folder) {
  uint64_t step = 0;
  const std::filesystem::path path =
      std::filesystem::path(folder).lexically_normal() / "";  // so that a last / makes no name
  const std::filesystem::path own = path.parent_path();
  if (!checkpoint::IsDamage(status) ||
      !checkpoint::ParseStepFolderName(own.filename().string(), &step)) {
    return status;
  }
  const std::string root = own.has_parent_path() ? own.parent_path().string() : ".";
  const auto older = checkpoint::FindNewest(root, nullptr, step);
  if (!older.ok() && !absl::IsNotFound(older.status())) return status;
  return {status.code(),
          absl::StrCat(status.message(), older.ok() ? ". The newest older one that opens is " : "",
                       older.ok() ? *older : ". There is no older one there that opens")};
}

absl::StatusOr<base::ExitCode> Generate(const GenerationOptions& options, comm::Fabric& fabric) {
  if (options.checkpoint.empty()) {
    return absl::InvalidArgumentError(
        "--checkpoint: name a checkpoint folder (…/checkpoints/step-00001000)");
  }
  ASSIGN_OR_RETURN(auto agreement, MakeAgreement(fabric));
  // Of the files each rank looks only at those that Restore reads, not all ranks at all of them.
  const absl::StatusOr<checkpoint::Checkpoint> opened =
      checkpoint::OpenManifest(options.checkpoint);
  RETURN_IF_ERROR(NameOlder(opened.status(), options.checkpoint));
  const checkpoint::Checkpoint& checkpoint = *opened;
  ASSIGN_OR_RETURN(auto tokenizer, data::TokenizerFromDescription(checkpoint.info().tokenizer));
  const VocabularyOnly vocabulary(std::move(tokenizer));
  ASSIGN_OR_RETURN(const v1::JobSpec job, GenerationJob(checkpoint, fabric.size()));
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens, PromptTokens(options, vocabulary.tokenizer()));
  ASSIGN_OR_RETURN(const auto session,
                   Session::Open(job, fabric, *agreement, vocabulary, nullptr, {}));
  comm::Agreement& ranks = *agreement;
  RETURN_IF_ERROR(AgreeOn(checkpoint, ranks));
  RETURN_IF_ERROR(ranks.AllOk(
      NameOlder(session->Restore(checkpoint, /*with_moments=*/false), options.checkpoint),
      comm::kDiskDeadline));
  const int64_t known = vocabulary.tokenizer().vocab_size();
  const bool leader = fabric.rank() == 0;
  TextOut out(options.out, options.json);
  const size_t prompt_tokens = tokens.size();
  if (leader) {
    ASSIGN_OR_RETURN(const std::string prompt, vocabulary.tokenizer().Decode(tokens));
    out.Prompt(prompt);
  }
  bool stopped = false;
  for (int64_t count = 0; count < options.tokens; ++count) {
    const bool willing = !StopRequested() && std::ferror(options.out) == 0;
    // Rank 0 may be held by whoever reads the text, as by a terminal that is paused.
    ASSIGN_OR_RETURN(const bool go_on, AllAgreeAfterRankZero(ranks, willing));
    stopped = !go_on;
    if (stopped) break;
    ASSIGN_OR_RETURN(const int32_t next,
                     session->engine().NextToken(tokens, {.temperature = options.temperature,
                                                          .top_k = options.top_k,
                                                          .vocabulary = known,
                                                          .seed = options.seed}));
    tokens.push_back(next);
    if (!leader) continue;
    ASSIGN_OR_RETURN(const std::string text,
                     vocabulary.tokenizer().Decode(std::span(&tokens.back(), 1)));
    out.Write(text);
  }
  if (leader) out.End(tokens.size() - prompt_tokens, stopped);
  // Before all close together, which waits for nobody at a terminal.
  RETURN_IF_ERROR(
      ranks.AllOk(std::ferror(options.out) == 0
                      ? absl::OkStatus()
                      : absl::FailedPreconditionError("the text could not be written to stdout"),
                  comm::kDiskDeadline));
  return stopped ? base::kCancelled : base::kOk;
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
  app.add_flag("--json", options.json, "prompt, text and number of tokens as one line of JSON");
}

base::ExitCode RunGeneration(const GenerationOptions& options, comm::Fabric& fabric) {
  const absl::StatusOr<base::ExitCode> code = Generate(options, fabric);
  if (code.ok()) return *code;
  // Of what all were given the others would say the same.
  const bool same = absl::IsInvalidArgument(code.status()) || absl::IsNotFound(code.status());
  if (fabric.rank() == 0 || !same) spdlog::error("{}", base::MessageOf(code.status()));
  return base::ExitCodeOf(code.status());
}

}  // namespace trireme::worker
