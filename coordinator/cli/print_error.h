// The one way in which `trireme` prints an error.
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/exit_code.h"

namespace trireme::cli {

using base::ExitCode, base::kBadInput, base::kCancelled, base::kCheckpointed, base::kDenied,
    base::kDoesNotFit, base::kInternal, base::kJobFailed, base::kOk, base::kUnreachable;

// Prints "trireme: MESSAGE" to stderr and returns the code that goes with it.
inline ExitCode PrintError(const absl::Status& status) {
  const std::string message(status.message());
  std::fprintf(stderr, "trireme: %s\n", message.c_str());
  return base::ExitCodeOf(status);
}

// The same for an error of a call to the coordinator.
inline ExitCode PrintCallError(const absl::Status& status) {
  PrintError(status);
  return base::ExitCodeOfCall(status);
}

}  // namespace trireme::cli
