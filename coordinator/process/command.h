// Runs a program of somebody else to its end: no shell, no input, bounded in time and output.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::process {

struct Command {
  std::vector<std::string> argv;         // argv[0]: a name in PATH, or a path
  std::vector<std::string> environment;  // "NAME=value", instead of our own of the name
  std::chrono::milliseconds deadline{10000};
  size_t most_output_bytes = size_t{1} << 20;  // of output and errors, each
};

struct CommandResult {
  int exit_code = 0;  // 128 + n for a signal
  std::string output;
  std::string errors;
};

// Path of a program in PATH; empty: none.
std::string FindProgram(const std::string& name);

// Blocks until the program has ended, whatever its exit code. It runs in a process group of its
// own, which is killed if it must not go on: DeadlineExceeded after the deadline, ResourceExhausted
// beyond the limit of output. NotFound: no such program. What it has left in the background runs
// on, unheard.
absl::StatusOr<CommandResult> RunCommand(const Command& command);

// The output of a program that exits 0. FailedPrecondition quotes what it said otherwise.
absl::StatusOr<std::string> OutputOf(const Command& command);

// The first line of what a program said, cut and without control characters: for messages.
std::string FirstLine(const std::string& text);

}  // namespace trireme::process
