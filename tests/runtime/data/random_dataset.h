// Tokens drawn by a pure function of (split, sample, position): data for tests and benchmarks that
// need a job's shapes and not its text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/philox.h"
#include "runtime/data/dataset.h"

namespace trireme::data {

struct RandomDatasetOptions {
  int64_t vocab_size = 0;
  int64_t sequence_length = 0;
  int64_t samples = 11;
  bool ignored_targets = true;  // about one in eight targets is -1, a different share per sample
};

class RandomTokenizer : public Tokenizer {
 public:
  explicit RandomTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}
  int64_t vocab_size() const override { return vocab_size_; }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view) const override {
    return absl::UnimplementedError("random tokens have no text");
  }
  absl::StatusOr<std::string> Decode(std::span<const int32_t>) const override {
    return absl::UnimplementedError("random tokens have no text");
  }
  std::string Description() const override { return "random"; }

 private:
  int64_t vocab_size_;
};

class RandomDataset : public Dataset {
 public:
  explicit RandomDataset(const RandomDatasetOptions& options)
      : options_(options), tokenizer_(options.vocab_size) {}
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  int64_t samples(Split) const override { return options_.samples; }
  int64_t sequence_length() const override { return options_.sequence_length; }
  int64_t tokens(Split) const override { return options_.samples * options_.sequence_length; }
  void Read(Split, int64_t, std::span<int32_t> out) const override {
    std::fill(out.begin(), out.end(), 0);
  }
  void Fill(Split split, int64_t sample, std::span<int32_t> tokens,
            std::span<int32_t> targets) const override {
    const base::RandomSite site{static_cast<uint64_t>(split) + 5, base::SiteOf("tokens"), 0};
    const auto vocabulary = static_cast<uint32_t>(options_.vocab_size);
    for (int64_t t = 0; t < options_.sequence_length; ++t) {
      const auto index = static_cast<uint64_t>(sample * (options_.sequence_length + 1) + t);
      const auto at = static_cast<size_t>(t);
      tokens[at] = static_cast<int32_t>(site.Uniform32(index) % vocabulary);
      targets[at] = static_cast<int32_t>(site.Uniform32(index + 1) % vocabulary);
      if (options_.ignored_targets && (sample * 3 + t * t) % 8 == 1) targets[at] = -1;
    }
  }

 private:
  RandomDatasetOptions options_;
  RandomTokenizer tokenizer_;
};

}  // namespace trireme::data
