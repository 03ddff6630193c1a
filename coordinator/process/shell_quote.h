// Commands that people copy, scripts that are written.
#pragma once

#include <string>

namespace trireme::process {

// `word` as one word of a POSIX shell: as it is where that is safe, else in single quotes.
inline std::string ShellQuote(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyz"
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789-_./=:,@%+") == std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace trireme::process
