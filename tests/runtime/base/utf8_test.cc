// UTF-8 as strictly as RFC 3629 has it, and what stands in for what is none.
#include "runtime/base/utf8.h"

#include <catch2/catch.hpp>
#include <string>

namespace trireme::base {
namespace {

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

TEST_CASE("a line for a message is UTF-8 of bounded length") {
  CHECK(ShowableLine("libfoo: d\xE9"
                     "faut\nnext\t.",
                     100) ==
        "libfoo: d\xEF\xBF\xBD"
        "faut next .");
  CHECK(ShowableLine("12345678", 8) == "12345678");
  CHECK(ShowableLine("123456789", 8) == "12345...");
  // Nothing is cut within a character, also where the bytes of one would just end.
  CHECK(ShowableLine("1234\xC3\xA9"
                     "789",
                     8) == "1234...");
  CHECK(ShowableLine(std::string(1000, '\xFF'), 10) ==
        "\xEF\xBF\xBD\xEF\xBF\xBD"
        "...");
  CHECK(ShowableLine("", 3) == "");
}

}  // namespace
}  // namespace trireme::base
