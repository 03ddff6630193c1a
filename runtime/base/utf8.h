// Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::base {

inline constexpr uint32_t kCodePoints = 0x110000;
inline constexpr uint32_t kReplacementCharacter = 0xFFFD;
inline constexpr int kUtf8Invalid = 0;
inline constexpr int kUtf8Incomplete = -1;

// Decodes the first character of `text` (not empty) into `code_point` and returns its bytes (1 to
// 4); kUtf8Invalid if no UTF-8 begins so, kUtf8Incomplete if `text` ends inside a character.
int DecodeUtf8(std::string_view text, uint32_t& code_point);

// Appends the character; `code_point` < kCodePoints and no surrogate.
void AppendUtf8(uint32_t code_point, std::string& text);

// The text with U+FFFD in place of each byte that belongs to no character and of each control
// character but tab, line feed and carriage return: what may stand in HTML and on a terminal.
std::string ShowableUtf8(std::string_view text);
// The same of a text that comes in parts: takes what it returns from the front of `text`, and
// leaves the first bytes of a character there.
std::string TakeShowableUtf8(std::string& text);

// One line of at most `most_bytes` (3 or more), as a field of a protobuf message may hold it: as
// ShowableUtf8 with blanks for tab, line feed and carriage return, and "..." where it was cut.
std::string ShowableLine(std::string_view text, size_t most_bytes);

// For messages: 'x' (U+0078), or only U+0007 if it is not printable.
std::string DescribeCodePoint(uint32_t code_point);

}  // namespace trireme::base
