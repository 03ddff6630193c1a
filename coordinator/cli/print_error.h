// The one way in which `trireme` prints an error: a line of text, or, with --json, one of JSON.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/base/exit_code.h"

namespace trireme::cli {

using base::ExitCode, base::kBadInput, base::kCancelled, base::kCheckpointed, base::kDenied,
    base::kDoesNotFit, base::kInternal, base::kJobFailed, base::kOk, base::kUnreachable;

// From here on stderr is for programs too: errors as {"error": {"code": "NOT_FOUND", "exit_code":
// 2, "message": ..., "details": [{"field", "message"}]}}, warnings as {"warning": {"message"}}.
void PrintErrorsAsJson();

// Prints "trireme: MESSAGE" to stderr and returns the code that goes with it.
ExitCode PrintError(const absl::Status& status);

// The same for an error of a call to the coordinator.
ExitCode PrintCallError(const absl::Status& status);

// "trireme: warning: MESSAGE".
void PrintWarning(const std::string& message);

}  // namespace trireme::cli
