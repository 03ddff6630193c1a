// Tokenizers: what they number, what they refuse, and that their description builds them again.
#include "runtime/data/tokenizer.h"

#include <catch2/catch.hpp>

#include "runtime/data/utf8.h"
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

TEST_CASE("bytes of no character and what steers a terminal are replaced one by one") {
  const std::string instead = "\xEF\xBF\xBD";
  CHECK(ShowableUtf8("") == "");
  CHECK(ShowableUtf8("oar \xC3\xA9\t\r\n") == "oar \xC3\xA9\t\r\n");
  CHECK(ShowableUtf8("a\xFF\xC3") == "a" + instead + instead);
  CHECK(ShowableUtf8("\xE2\x82z") == instead + instead + "z");
  CHECK(ShowableUtf8("\x1B[31m\x7F\xC2\x9B") == instead + "[31m" + instead + instead);
  CHECK(ShowableUtf8(std::string(1, '\0')) == instead);
}

TEST_CASE("a text in parts is shown as the whole one") {
  const std::string whole = "\xF0\x9F\x9A\xA3 a\xE2\x82\xAC\xFF\xC3\xA9\xE2z\x1B.";
  std::string pending, shown;
  for (const char byte : whole) {
    pending += byte;
    shown += TakeShowableUtf8(pending);
    CHECK(pending.size() < 4);
  }
  CHECK(pending.empty());
  CHECK(shown == ShowableUtf8(whole));
  pending = "a\xE2\x82";
  CHECK(TakeShowableUtf8(pending) == "a");
  CHECK(pending == "\xE2\x82");
}

TEST_CASE("UTF-8 is strict at every boundary and round-trips") {
  for (uint32_t c = 0; c < kCodePoints; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    if (c > 0x3000 && c < 0xD000 && c % 97 != 0) continue;
    std::string text;
    AppendUtf8(c, text);
    uint32_t decoded = 0;
    const int length = DecodeUtf8(text + "x", decoded);
    if (length != static_cast<int>(text.size()) || decoded != c) FAIL("U+" << std::hex << c);
    if (text.size() > 1 &&
        DecodeUtf8(std::string_view(text).substr(0, text.size() - 1), decoded) != kUtf8Incomplete) {
      FAIL("cut U+" << std::hex << c);
    }
  }
  // Overlong, surrogate, above U+10FFFF, stray continuation, bad continuation.
  for (const char* bad :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xED\xA0\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80", "\xC3(", "\xE2\x82("}) {
    uint32_t decoded = 0;
    CHECK(DecodeUtf8(bad, decoded) == kUtf8Invalid);
  }
}

}  // namespace
}  // namespace trireme::data
