// `trireme codec`: files of raw floating-point values to codec streams and back.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "absl/status/status.h"

namespace trireme::compress {

// Describes the subcommand. When one of its commands has run, `done` gets its end; answers go to
// stdout. DataLoss: the stream is damaged.
void AddCodecCommands(CLI::App& app, const std::function<void(const absl::Status&)>& done);

}  // namespace trireme::compress
