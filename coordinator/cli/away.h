// What those who follow a stream say of a coordinator that is away: to people, beside the output.
#pragma once

#include <string>

#include "coordinator/cli/control.h"

namespace trireme::cli {

// "the coordinator at HOST:PORT is away; waiting for it, for 120 s at most", or that it is back.
std::string AwayText(const ControlOptions& control, bool away);

// Prints that to stderr: a line, with --json a warning.
void TellAway(const ControlOptions& control, bool away);

}  // namespace trireme::cli
