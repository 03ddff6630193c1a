// Text: its arguments, written one after another; Counted: how many of something. For messages.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>

namespace trireme::base {

// "{}" once for each of `count` arguments.
template <size_t count>
inline constexpr auto kFields = [] {
  std::array<char, 2 * count> fields{};
  for (size_t i = 0; i < count; ++i) {
    fields[2 * i] = '{';
    fields[2 * i + 1] = '}';
  }
  return fields;
}();

// Through vformat, which the library has compiled: format_to would bring all of its code into each
// file.
template <typename... Parts>
std::string Text(const Parts&... parts) {
  constexpr auto& fields = kFields<sizeof...(Parts)>;
  return fmt::vformat({fields.data(), fields.size()}, fmt::make_format_args(parts...));
}

// "1 rank", "2 ranks".
template <typename Number>
std::string Counted(Number count, const char* one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

}  // namespace trireme::base
