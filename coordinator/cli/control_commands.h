// The words of the command line for the coordinator daemon.
#pragma once

#include <CLI/CLI.hpp>

namespace trireme::cli {

// Describes the subcommands of control.h; one that runs sets `code`, which must outlive the
// parsing.
void AddControlCommands(CLI::App& app, int* code);

}  // namespace trireme::cli
