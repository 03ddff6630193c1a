// What the exit code of `trireme` says (docs/operations.md), and the one way errors are printed.
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/status.h"

namespace trireme::cli {

enum ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kBadInput = 2,
  kDoesNotFit = 3,
  kJobFailed = 4,
  kCancelled = 5,
  kCheckpointed = 75,
};

inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInternal:
      return kInternal;
    case absl::StatusCode::kResourceExhausted:
      return kDoesNotFit;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnavailable:
      return kJobFailed;
    default:
      return kBadInput;
  }
}

// Prints "trireme: MESSAGE" to stderr and returns the code that goes with it.
inline int PrintError(const absl::Status& status) {
  const std::string message(status.message());
  std::fprintf(stderr, "trireme: %s\n", message.c_str());
  return ExitCodeOf(status);
}

}  // namespace trireme::cli
