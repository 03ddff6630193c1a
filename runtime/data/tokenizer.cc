// The byte and the char tokenizer, and their descriptions as JSON.
#include "runtime/data/tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/json/json_text.h"

namespace trireme::data {
namespace {

absl::Status OutsideVocabulary(int32_t id, size_t position, int64_t vocab_size) {
  return absl::InvalidArgumentError(
      fmt::format("token id {} at position {} is outside the vocabulary of {} tokens", id, position,
                  vocab_size));
}

absl::Status InvalidText(size_t offset) {
  return absl::InvalidArgumentError(fmt::format("the text is not UTF-8 at byte {}", offset));
}

// `unknown`: not empty.
absl::Status NotInVocabulary(std::u32string_view unknown, size_t first_offset) {
  constexpr size_t kShown = 8;
  std::string text =
      fmt::format("the character {} at byte {}", base::DescribeCodePoint(unknown[0]), first_offset);
  for (size_t i = 1; i < unknown.size() && i < kShown; ++i) {
    text += (i == 1 ? " and later " : ", ") + base::DescribeCodePoint(unknown[i]);
  }
  if (unknown.size() > kShown) text += fmt::format(" and {} others", unknown.size() - kShown);
  return absl::InvalidArgumentError(
      fmt::format("{} {} not in the vocabulary: the training text does not hold {}", text,
                  unknown.size() == 1 ? "is" : "are", unknown.size() == 1 ? "it" : "them"));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ByteTokenizer::Encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<uint8_t>(text[i]);
  return ids;
}

absl::StatusOr<std::string> ByteTokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text(ids.size(), '\0');
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] > 255) return OutsideVocabulary(ids[i], i, 256);
    text[i] = static_cast<char>(ids[i]);
  }
  return text;
}

std::string ByteTokenizer::Description() const { return R"({"type":"byte"})"; }

CharTokenizer::CharTokenizer(std::u32string characters) : characters_(std::move(characters)) {
  TRIREME_CHECK(!characters_.empty() && characters_.back() < base::kCodePoints);
  ids_.assign(characters_.back() + size_t{1}, -1);
  for (size_t id = 0; id < characters_.size(); ++id) {
    TRIREME_CHECK(id == 0 || characters_[id - 1] < characters_[id]);
    ids_[characters_[id]] = static_cast<int32_t>(id);
  }
}

absl::StatusOr<std::vector<int32_t>> CharTokenizer::Encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  std::u32string unknown;  // distinct
  size_t first_unknown = 0;
  for (size_t offset = 0; offset < text.size();) {
    uint32_t code_point = 0;
    const int length = base::DecodeUtf8(text.substr(offset), code_point);
    if (length <= 0) return InvalidText(offset);
    const int32_t id = Find(code_point);
    if (id < 0 && unknown.empty()) first_unknown = offset;
    if (id < 0 && unknown.find(code_point) == std::u32string::npos) unknown.push_back(code_point);
    ids.push_back(id);
    offset += static_cast<size_t>(length);
  }
  if (!unknown.empty()) return NotInVocabulary(unknown, first_unknown);
  return ids;
}

absl::StatusOr<std::string> CharTokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size()) return OutsideVocabulary(ids[i], i, vocab_size());
    base::AppendUtf8(characters_[static_cast<size_t>(ids[i])], text);
  }
  return text;
}

std::string CharTokenizer::Description() const {
  std::string characters;
  for (char32_t character : characters_) base::AppendUtf8(character, characters);
  nlohmann::ordered_json json;
  json["type"] = "char";
  json["characters"] = characters;
  return json_text::Write(json);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerFromDescription(std::string_view description) {
  const auto bad = [](std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("tokenizer description: {}", what));
  };
  const nlohmann::json json = json_text::Parse(description);
  if (!json.is_object()) return bad("not a JSON object");
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) return bad("the key \"type\" is missing");
  const auto& name = type->get_ref<const std::string&>();
  if (name == "byte") return std::make_unique<ByteTokenizer>();
  if (name != "char") return bad(fmt::format("unknown type \"{}\", expected char or byte", name));
  const auto characters = json.find("characters");
  if (characters == json.end() || !characters->is_string()) return bad("\"characters\" is missing");
  const auto& text = characters->get_ref<const std::string&>();
  std::u32string code_points;
  for (size_t offset = 0; offset < text.size();) {
    uint32_t code_point = 0;
    const int length = base::DecodeUtf8(std::string_view(text).substr(offset), code_point);
    if (length <= 0) return bad(fmt::format("\"characters\" is not UTF-8 at byte {}", offset));
    if (!code_points.empty() && code_points.back() >= code_point) {
      return bad(fmt::format("\"characters\" does not ascend at byte {}", offset));
    }
    code_points.push_back(code_point);
    offset += static_cast<size_t>(length);
  }
  if (code_points.empty()) return bad("\"characters\" is empty");
  return std::make_unique<CharTokenizer>(std::move(code_points));
}

}  // namespace trireme::data
