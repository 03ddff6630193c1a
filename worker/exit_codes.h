// What the worker's exit code says (docs/operations.md).
#pragma once

#include "absl/status/status.h"

namespace trireme::worker {

enum ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kBadInput = 2,
  kDoesNotFit = 3,
  kJobFailed = 4,
  kCheckpointed = 75,  // stopped at a step boundary with a checkpoint: run again to go on
};

inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return kBadInput;
    case absl::StatusCode::kResourceExhausted:
      return kDoesNotFit;
    case absl::StatusCode::kInternal:
      return kInternal;
    default:
      return kJobFailed;
  }
}

}  // namespace trireme::worker
