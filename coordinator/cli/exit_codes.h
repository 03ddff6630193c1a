// What the exit codes of `trireme` mean, in the words of its help and its manual page;
// docs/operations.md has the same codes with what to do.
#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

struct ExitMeaning {
  int code;
  std::string meaning;
};
const std::vector<ExitMeaning>& ExitMeanings();

// One a line, below "Exit codes:".
std::string ExitCodeText();

}  // namespace trireme::cli
