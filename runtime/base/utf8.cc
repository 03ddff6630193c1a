// UTF-8 by the table of RFC 3629: the second byte alone tells the illegal forms.
#include "runtime/base/utf8.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::base {

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

namespace {

// Appends the first character of `text`, or its stand-in, and returns DecodeUtf8's answer.
int ShowFirst(std::string_view text, std::string& shown) {
  uint32_t code_point = 0;
  const int length = DecodeUtf8(text, code_point);
  const bool blank = code_point == '\t' || code_point == '\n' || code_point == '\r';
  const bool control = code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
  const bool showable = length > 0 && (blank || !control);
  AppendUtf8(showable ? code_point : kReplacementCharacter, shown);
  return length;
}

}  // namespace

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

std::string ShowableUtf8(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const int length = ShowFirst(text, shown);
    text.remove_prefix(length > 0 ? static_cast<size_t>(length) : 1);
  }
  return shown;
}

std::string TakeShowableUtf8(std::string& text) {
  size_t end = text.size();
  // At most three bytes begin a character that is not whole.
  for (size_t back = std::min<size_t>(3, end); back > 0; --back) {
    uint32_t code_point = 0;
    const std::string_view tail = std::string_view(text).substr(end - back);
    if (DecodeUtf8(tail, code_point) != kUtf8Incomplete) continue;
    end -= back;
    break;
  }
  std::string shown = ShowableUtf8(std::string_view(text).substr(0, end));
  text.erase(0, end);
  return shown;
}

std::string ShowableLine(std::string_view text, size_t most_bytes) {
  // No byte becomes less than one, so what is beyond is cut in any case.
  std::string line = ShowableUtf8(text.substr(0, most_bytes + 1));
  for (char& c : line) {
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  }
  if (line.size() <= most_bytes) return line;
  line.resize(most_bytes - 3);
  while (!line.empty() && (static_cast<uint8_t>(line.back()) & 0xC0) == 0x80) line.pop_back();
  if (!line.empty() && static_cast<uint8_t>(line.back()) >= 0xC0) line.pop_back();
  return line + "...";
}

std::string DescribeCodePoint(uint32_t code_point) {
  std::string number = fmt::format("U+{:04X}", code_point);
  if (code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0)) return number;
  std::string character;
  AppendUtf8(code_point, character);
  return fmt::format("'{}' ({})", character, number);
}

}  // namespace trireme::base
