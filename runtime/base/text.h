// Text: its arguments, written one after another. For messages of errors.
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

}  // namespace trireme::base
