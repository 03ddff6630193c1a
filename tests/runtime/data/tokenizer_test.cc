// Tokenizers: what they number, what they refuse, and that their description builds them again.
#include "runtime/data/tokenizer.h"

#include <catch2/catch.hpp>

#include "runtime/data/token_array.h"
#include "tests/runtime/data/text_fixture.h"

namespace trireme::data {
namespace {

TEST_CASE("char ids are the ranks of the code points of the text") {
  const TextFile file("na\xC3\xAFve caf\xC3\xA9 \xF0\x9F\x9A\xA3 ok");  // 15 characters
  const auto dataset = OpenDataset(file.Options(4));
  REQUIRE(dataset.ok());
  const Tokenizer& tokenizer = (*dataset)->tokenizer();
  // space a c e f k n o v e-acute i-diaeresis rower
  CHECK(tokenizer.vocab_size() == 12);
  const auto ids = tokenizer.Encode("a \xF0\x9F\x9A\xA3\xC3\xA9");
  REQUIRE(ids.ok());
  CHECK(*ids == std::vector<int32_t>{1, 0, 11, 9});
  CHECK((*dataset)->tokens(Split::kTrain) + (*dataset)->tokens(Split::kValidation) == 15);
  CHECK(VocabularyOf(file.Options(4)).value() == 12);
}

TEST_CASE("what a text takes of memory is known without opening it") {
  const auto bytes = [](const std::string& text, const char* tokenizer) {
    const TextFile file(text);
    DatasetOptions options = file.Options(4);
    options.tokenizer = tokenizer;
    return SurveyText(options).value().dataset_bytes;
  };
  const std::string accents(100, ' ');
  CHECK(bytes(accents + "\xC3\xA9", "char") == 101);
  CHECK(bytes(accents + "\xC3\xA9", "byte") == 102);
  std::string many;  // 300 characters, which no byte holds
  for (int c = 0; c < 300; ++c) {
    many += {'\xE4', static_cast<char>(0x80 + c / 64), static_cast<char>(0x80 + c % 64)};
  }
  CHECK(bytes(many, "char") == 600);
  CHECK((IdBytes(256) == 1 && IdBytes(257) == 2 && IdBytes(65536) == 2 && IdBytes(65537) == 4));
}

TEST_CASE("ASCII text gives bytes in their order") {
  const TextFile file("hello, world\nhello\n");
  const auto dataset = OpenDataset(file.Options(4));
  REQUIRE(dataset.ok());
  CHECK((*dataset)->tokenizer().Encode("\n ,dehlorw").value() ==
        std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("a description builds the same tokenizer") {
  const TextFile file(std::string("a\"\\\0\x01\x7F\xC3\xA9z \xE2\x82\xAC stop", 18));
  for (const char* kind : {"char", "byte"}) {
    DatasetOptions options = file.Options(3);
    options.tokenizer = kind;
    const auto dataset = OpenDataset(options);
    REQUIRE(dataset.ok());
    const Tokenizer& tokenizer = (*dataset)->tokenizer();
    const auto again = TokenizerFromDescription(tokenizer.Description());
    REQUIRE(again.ok());
    CHECK((*again)->vocab_size() == tokenizer.vocab_size());
    CHECK((*again)->Description() == tokenizer.Description());
    const std::string text = "z\xC3\xA9\xE2\x82\xAC\"";
    CHECK((*again)->Encode(text).value() == tokenizer.Encode(text).value());
    CHECK((*again)->Decode(tokenizer.Encode(text).value()).value() == text);
  }
}

TEST_CASE("a broken description is refused with its cause") {
  for (const char* bad :
       {"", "[]", "{", "{}", R"({"type":1})", R"({"type":"bpe"})", R"({"type":"char"})",
        R"({"type":"char","characters":""})", R"({"type":"char","characters":"ba"})",
        R"({"type":"char","characters":"aa"})", "{\"type\":\"char\",\"characters\":\"\xC3\"}"}) {
    CAPTURE(bad);
    const auto tokenizer = TokenizerFromDescription(bad);
    REQUIRE_FALSE(tokenizer.ok());
    CHECK(tokenizer.status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("what has no token is named with its place") {
  const CharTokenizer tokenizer(U"abc");
  const auto encoded = tokenizer.Encode("ab\xC3\xA9");
  REQUIRE_FALSE(encoded.ok());
  CHECK(std::string(encoded.status().message()).find("U+00E9) at byte 2") != std::string::npos);
  const std::string all = std::string(tokenizer.Encode("xaxby").status().message());
  CHECK(all.find("U+0078) at byte 0 and later 'y' (U+0079) are not") != std::string::npos);
  CHECK_FALSE(tokenizer.Encode("ab\xFF").ok());
  CHECK_FALSE(tokenizer.Decode(std::vector<int32_t>{0, 3}).ok());
  CHECK_FALSE(tokenizer.Decode(std::vector<int32_t>{-1}).ok());
  CHECK_FALSE(ByteTokenizer().Decode(std::vector<int32_t>{256}).ok());
}

}  // namespace
}  // namespace trireme::data
