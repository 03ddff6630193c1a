// `trireme codec`: files of raw floating-point values to codec streams and back.
#pragma once

#include <CLI/CLI.hpp>

namespace trireme::cli {

// Describes the subcommand; when it runs it sets `code`, which must outlive the parsing.
void AddCodec(CLI::App& app, int* code);

}  // namespace trireme::cli
