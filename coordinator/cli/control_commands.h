// The words of the command line for the coordinator daemon.
#pragma once

#include <CLI/CLI.hpp>

#include "coordinator/cli/control.h"

namespace trireme::cli {

// Describes the subcommands of control.h; one that runs sets `code`, which must outlive the
// parsing.
void AddControlCommands(CLI::App& app, int* code);

// The options that say where the coordinator is and who asks, in a group of their own.
void AddReach(CLI::App& command, ControlOptions& control);

}  // namespace trireme::cli
