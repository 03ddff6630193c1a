// A command line as a page of Markdown.
#pragma once

#include <string>

#include "coordinator/manual/command_tree.h"

namespace trireme::manual {

// A section for each command, those of commands that have some as well. `introduction`: what stands
// at its top.
std::string MarkdownOf(const Command& root, const std::string& introduction);

}  // namespace trireme::manual
