// UTF-8 by the table of RFC 3629: the second byte alone tells the illegal forms.
#include "runtime/data/utf8.h"

#include <fmt/format.h>

namespace trireme::data {

int DecodeUtf8(std::string_view text, uint32_t& code_point) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) {
    code_point = lead;
    return 1;
  }
  if (lead < 0xC2 || lead > 0xF4) return kUtf8Invalid;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t value = lead & (0xFFu >> (length + 1));
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) >= text.size()) return kUtf8Incomplete;
    const uint8_t next = byte(i);
    // The second byte alone tells overlong forms, surrogates and values above U+10FFFF.
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1 && lead == 0xE0) low = 0xA0;
    if (i == 1 && lead == 0xED) high = 0x9F;
    if (i == 1 && lead == 0xF0) low = 0x90;
    if (i == 1 && lead == 0xF4) high = 0x8F;
    if (next < low || next > high) return kUtf8Invalid;
    value = (value << 6) | (next & 0x3F);
  }
  code_point = value;
  return length;
}

void AppendUtf8(uint32_t code_point, std::string& text) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string ValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    uint32_t code_point = 0;
    const int length = DecodeUtf8(text, code_point);
    AppendUtf8(length > 0 ? code_point : kReplacementCharacter, valid);
    text.remove_prefix(length > 0 ? static_cast<size_t>(length) : 1);
  }
  return valid;
}

std::string DescribeCodePoint(uint32_t code_point) {
  std::string number = fmt::format("U+{:04X}", code_point);
  if (code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0)) return number;
  std::string character;
  AppendUtf8(code_point, character);
  return fmt::format("'{}' ({})", character, number);
}

}  // namespace trireme::data
