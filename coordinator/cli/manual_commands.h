// What the command line says about itself: `trireme completion` and `trireme man`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace trireme::cli {

// Describes both; the one that runs sets `code`, which must outlive the parsing, as must `app`. To
// be called when all other subcommands are there.
void AddManualCommands(CLI::App& app, int* code);

// The word behind `trireme` with which the scripts of `trireme completion` ask for completions;
// what follows it are words as they stand, and no options of ours.
constexpr const char* kCompleter = "__complete";
// Prints what may follow `words`, the last of which is being typed. Always 0.
int RunComplete(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace trireme::cli
