// The tokenizers of this room, by concrete type: the dataset encodes through them without a copy of
// the text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"

namespace trireme::data {

// One token per byte.
class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 256; }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override;
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const override;
  std::string Description() const override;
};

// One token per character (Unicode code point), numbered in order of the code points.
class CharTokenizer final : public Tokenizer {
 public:
  // `characters`: not empty, strictly ascending, valid code points.
  explicit CharTokenizer(std::u32string characters);
  int64_t vocab_size() const override { return static_cast<int64_t>(characters_.size()); }
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const override;
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const override;
  std::string Description() const override;
  // -1: no token.
  int32_t Find(uint32_t code_point) const {
    return code_point < ids_.size() ? ids_[code_point] : -1;
  }

 private:
  std::u32string characters_;  // by id
  std::vector<int32_t> ids_;   // by code point
};

}  // namespace trireme::data
