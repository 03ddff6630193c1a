// Pages for man (roff with the man macros).
#pragma once

#include <string>
#include <vector>

#include "coordinator/manual/command_tree.h"

namespace trireme::manual {

struct ManPage {
  std::string name;  // "trireme-codec", of section 1
  std::string text;
};

struct ManFooter {
  std::string version;                                  // "trireme 0.1.0"
  std::vector<std::string> see_also;                    // names of pages of other programs
  std::vector<std::pair<int, std::string>> exit_codes;  // of the whole program
};

// Of the command alone; one that has commands of its own tells of them as well.
ManPage PageOf(const Command& command, const ManFooter& footer);

// Of the program and of each command directly below it.
std::vector<ManPage> PagesOf(const Command& root, const ManFooter& footer);

}  // namespace trireme::manual
