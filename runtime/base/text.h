// Text: its arguments, written one after another; Counted: how many of something. For messages.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>

namespace trireme::base {

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::string text;
  (fmt::format_to(std::back_inserter(text), "{}", parts), ...);
  return text;
}

// "1 rank", "2 ranks".
template <typename Number>
std::string Counted(Number count, const char* one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

}  // namespace trireme::base
