// Two passes over the files: the first finds the characters and counts the tokens, the second
// encodes into the narrowest ids, so that the text itself is never in memory.
#include "runtime/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <cmath>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/data/sample_order.h"
#include "runtime/data/text_file.h"
#include "runtime/data/token_array.h"
#include "runtime/data/tokenizer.h"

namespace trireme::data {
namespace {

// What the first pass learns.
struct Survey {
  int64_t tokens = 0;
  int64_t train_tokens = 0;
  std::u32string characters;  // sorted; empty for the byte tokenizer
};

absl::StatusOr<Order> ParseOrder(const std::string& name) {
  if (name == "random") return Order::kRandom;
  if (name == "shuffled") return Order::kShuffled;
  if (name == "sequential") return Order::kSequential;
  return absl::InvalidArgumentError(
      fmt::format("data.order: \"{}\" is unknown, expected random, shuffled or sequential", name));
}

absl::Status CheckOptions(const DatasetOptions& options) {
  if (options.text_files.empty()) {
    return absl::InvalidArgumentError("data.text_files is empty: name at least one text file");
  }
  if (options.tokenizer != "char" && options.tokenizer != "byte") {
    return absl::InvalidArgumentError(
        fmt::format("data.tokenizer: \"{}\" is unknown, expected char or byte", options.tokenizer));
  }
  if (options.sequence_length < 1) {
    return absl::InvalidArgumentError(fmt::format(
        "data.sequence_length: {} is not allowed, at least 1 is", options.sequence_length));
  }
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    return absl::InvalidArgumentError(fmt::format(
        "data.validation_fraction: {} is not allowed, 0 <= f < 1 is", options.validation_fraction));
  }
  return ParseOrder(options.order).status();
}

// Splits, or says how many tokens are there and how many are needed.
absl::Status SplitTokens(const DatasetOptions& options, Survey& survey) {
  const double share = 1.0 - options.validation_fraction;
  survey.train_tokens = static_cast<int64_t>(static_cast<double>(survey.tokens) * share);
  const int64_t needed = options.sequence_length + 1;
  if (survey.train_tokens < needed) {
    return absl::InvalidArgumentError(fmt::format(
        "the text is too short: {} tokens, of which {} are for training, but one sample needs {} "
        "(data.sequence_length {} and one target); give more text or a shorter sequence",
        survey.tokens, survey.train_tokens, needed, options.sequence_length));
  }
  const int64_t validation = survey.tokens - survey.train_tokens;
  if (options.validation_fraction > 0 && validation < 2) {
    return absl::InvalidArgumentError(fmt::format(
        "the text is too short: {} of its {} tokens are for validation, but at least 2 are needed; "
        "raise data.validation_fraction ({}) or set it to 0",
        validation, survey.tokens, options.validation_fraction));
  }
  return absl::OkStatus();
}

absl::Status GoOn(const DatasetOptions& options, const std::string& file) {
  return options.go_on ? options.go_on(file) : absl::OkStatus();
}

absl::StatusOr<Survey> SurveyFiles(const DatasetOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  Survey survey;
  if (options.tokenizer == "byte") {
    for (const std::string& path : options.text_files) {
      RETURN_IF_ERROR(GoOn(options, path));
      RETURN_IF_ERROR(ReadChunks(path, options.links, [&](std::string_view chunk) {
        survey.tokens += static_cast<int64_t>(chunk.size());
        return GoOn(options, path);
      }));
    }
  } else {
    const auto seen = std::make_unique<std::bitset<base::kCodePoints>>();
    for (const std::string& path : options.text_files) {
      RETURN_IF_ERROR(GoOn(options, path));
      RETURN_IF_ERROR(ReadCodePoints(path, options.links, [&](std::u32string_view characters) {
        for (char32_t character : characters) seen->set(character);
        survey.tokens += static_cast<int64_t>(characters.size());
        return GoOn(options, path);
      }));
    }
    for (uint32_t c = 0; c < base::kCodePoints; ++c) {
      if (seen->test(c)) survey.characters.push_back(c);
    }
  }
  RETURN_IF_ERROR(SplitTokens(options, survey));
  return survey;
}

// Of what the byte tokenizer makes of them, by their lengths.
absl::StatusOr<Survey> SurveyLengths(const DatasetOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  Survey survey;
  ASSIGN_OR_RETURN(const uint64_t bytes, BytesOf(options));
  survey.tokens = static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX));
  RETURN_IF_ERROR(SplitTokens(options, survey));
  return survey;
}

absl::StatusOr<Survey> SurveyFor(const DatasetOptions& options) {
  return options.tokenizer == "byte" ? SurveyLengths(options) : SurveyFiles(options);
}

class TextDataset final : public Dataset {
 public:
  TextDataset(std::unique_ptr<Tokenizer> tokenizer, TokenArray ids, SampleOrder order)
      : tokenizer_(std::move(tokenizer)), ids_(std::move(ids)), order_(order) {}

  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  int64_t sequence_length() const override { return order_.sequence_length; }
  int64_t tokens(Split split) const override {
    return split == Split::kTrain ? order_.tokens : ids_.size() - order_.tokens;
  }

  int64_t samples(Split split) const override {
    if (split == Split::kTrain) return order_.windows();
    const int64_t targets = tokens(split) - 1;
    return targets <= 0 ? 0 : (targets + sequence_length() - 1) / sequence_length();
  }

  void Read(Split split, int64_t begin, std::span<int32_t> out) const override {
    TRIREME_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= tokens(split));
    ids_.Read(begin + (split == Split::kTrain ? 0 : order_.tokens), out);
  }

  void Fill(Split split, int64_t sample, std::span<int32_t> tokens_out,
            std::span<int32_t> targets) const override {
    const auto length = static_cast<size_t>(sequence_length());
    TRIREME_CHECK(tokens_out.size() == length && targets.size() == length && sample >= 0);
    size_t count = length;
    int64_t start = 0;
    if (split == Split::kTrain) {
      start = order_.Start(sample);
    } else {
      TRIREME_CHECK(sample < samples(split));
      start = sample * sequence_length();
      count = std::min(length, static_cast<size_t>(tokens(split) - 1 - start));
    }
    Read(split, start, tokens_out.first(count));
    Read(split, start + 1, targets.first(count));
    std::fill(tokens_out.begin() + static_cast<ptrdiff_t>(count), tokens_out.end(), 0);
    std::fill(targets.begin() + static_cast<ptrdiff_t>(count), targets.end(), -1);
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenArray ids_;     // training text, then validation text
  SampleOrder order_;  // of the training text
};

absl::Status Changed(const std::string& path) {
  return absl::FailedPreconditionError(
      fmt::format("text file {} changed while it was being read; start again", path));
}

absl::Status EncodeChars(const DatasetOptions& options, const CharTokenizer& tokenizer,
                         TokenArray& ids) {
  for (const std::string& path : options.text_files) {
    RETURN_IF_ERROR(
        ReadCodePoints(path, options.links, [&](std::u32string_view characters) -> absl::Status {
          for (char32_t character : characters) {
            const int32_t id = tokenizer.Find(character);
            if (id < 0) return Changed(path);
            ids.Append(id);
          }
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

absl::Status EncodeBytes(const DatasetOptions& options, TokenArray& ids) {
  for (const std::string& path : options.text_files) {
    RETURN_IF_ERROR(ReadChunks(path, options.links, [&](std::string_view chunk) {
      for (char c : chunk) ids.Append(static_cast<uint8_t>(c));
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

std::unique_ptr<Tokenizer> MakeTokenizer(const DatasetOptions& options, const Survey& survey) {
  if (options.tokenizer == "byte") return std::make_unique<ByteTokenizer>();
  return std::make_unique<CharTokenizer>(survey.characters);
}

}  // namespace

absl::StatusOr<uint64_t> BytesOf(const DatasetOptions& options) {
  uint64_t bytes = 0;
  for (const std::string& path : options.text_files) {
    RETURN_IF_ERROR(GoOn(options, path));
    ASSIGN_OR_RETURN(const uint64_t length, LengthOf(path, options.links));
    if (length == 0) return EmptyFile(path);
    bytes += std::min(length, UINT64_MAX - bytes);
  }
  return bytes;
}

absl::StatusOr<int64_t> VocabularyOf(const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const Survey survey, SurveyFor(options));
  return options.tokenizer == "byte" ? 256 : static_cast<int64_t>(survey.characters.size());
}

absl::StatusOr<SurveyedText> SurveyText(const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const Survey survey, SurveyFor(options));
  SurveyedText text{MakeTokenizer(options, survey), 0};
  const auto id_bytes = static_cast<uint64_t>(IdBytes(text.tokenizer->vocab_size()));
  text.dataset_bytes = id_bytes * static_cast<uint64_t>(survey.tokens);
  return text;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const Survey survey, SurveyFiles(options));
  ASSIGN_OR_RETURN(const Order order, ParseOrder(options.order));
  std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer(options, survey);
  TokenArray ids(tokenizer->vocab_size());
  ids.Reserve(survey.tokens);
  if (options.tokenizer == "byte") {
    RETURN_IF_ERROR(EncodeBytes(options, ids));
  } else {
    RETURN_IF_ERROR(EncodeChars(options, static_cast<const CharTokenizer&>(*tokenizer), ids));
  }
  if (ids.size() != survey.tokens) return Changed(options.text_files.front());
  return std::make_unique<TextDataset>(
      std::move(tokenizer), std::move(ids),
      SampleOrder{order, options.seed, survey.train_tokens, options.sequence_length});
}

}  // namespace trireme::data
