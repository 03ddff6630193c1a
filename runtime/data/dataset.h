// Text as samples: a batch is a pure function of (seed, global sample index), whatever the layout.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/text_file.h"

namespace trireme::data {

// Text to token ids and back. Later tokenizers (BPE) fit behind it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;
  // InvalidArgument names the position and the character that has no token.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const = 0;
  // Ids outside the vocabulary are an InvalidArgument.
  virtual absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const = 0;
  // Enough to build the same tokenizer again (FromDescription): kept in checkpoints.
  virtual std::string Description() const = 0;
};

enum class Split : uint8_t { kTrain, kValidation };

struct DatasetOptions {
  std::vector<std::string> text_files;
  base::Links links = base::Links::kFollow;  // on the way to text_files
  std::string tokenizer = "char";            // char | byte
  int64_t sequence_length = 64;
  double validation_fraction = 0.1;
  std::string order = "random";  // random | shuffled | sequential
  uint64_t seed = 1;
  // Asked before each file is looked at, which it gets, and after each MiB at most that was read of
  // it; an error ends the reading and is returned. Absent: all of it is read.
  std::function<absl::Status(const std::string& file)> go_on = {};
};

// Thread: any; immutable after Open.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const Tokenizer& tokenizer() const = 0;
  // Number of samples: windows of sequence_length + 1 tokens overlapping by one. Training samples
  // are drawn without end; this is one epoch. The validation split may end with a shorter window;
  // it is padded with target -1.
  virtual int64_t samples(Split split) const = 0;
  virtual int64_t sequence_length() const = 0;
  // Tokens of a split, and tokens [begin, begin + out.size()) of its text, as ids in order of the
  // text, whatever the order of the samples. The range lies inside the split.
  virtual int64_t tokens(Split split) const = 0;
  virtual void Read(Split split, int64_t begin, std::span<int32_t> out) const = 0;
  // Tokens [T] and targets [T] (the next token; -1: not counted) of one sample, written to the
  // caller's memory. Training: any index >= 0, ordered as DatasetOptions::order. Validation: index
  // < samples(kValidation), in order of the text. Allocates nothing.
  virtual void Fill(Split split, int64_t sample, std::span<int32_t> tokens,
                    std::span<int32_t> targets) const = 0;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerFromDescription(std::string_view description);
// Reads the files, builds the tokenizer, encodes. Errors name the file and the cause.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetOptions& options);
// The bytes of the files together, of which none is read.
absl::StatusOr<uint64_t> BytesOf(const DatasetOptions& options);
// The vocabulary that OpenDataset would build, with the same checks, but without keeping the
// tokens: what a planner needs of the data. Of the byte tokenizer no text is read: the lengths of
// the files say all.
absl::StatusOr<int64_t> VocabularyOf(const DatasetOptions& options);
// Likewise the tokenizer, and what the tokens take of the memory of each process that opens them.
struct SurveyedText {
  std::unique_ptr<Tokenizer> tokenizer;
  uint64_t dataset_bytes = 0;
};
absl::StatusOr<SurveyedText> SurveyText(const DatasetOptions& options);

}  // namespace trireme::data
