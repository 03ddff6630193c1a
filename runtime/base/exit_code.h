// What the exit code of a program of Trireme says (docs/operations.md); the launcher passes on the
// worker's.
#pragma once

#include <csignal>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace trireme::base {

enum ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kBadInput = 2,
  kDoesNotFit = 3,
  kJobFailed = 4,
  kCancelled = 5,
  kUnreachable = 69,  // no coordinator answers, or it takes nothing more at present
  // Of a worker: its machine is large enough, and has no room at present. The launch of another
  // attempt is to be elsewhere, or later.
  kNoRoomHere = 73,
  kCheckpointed = 75,  // stopped at a step boundary with a checkpoint: run again to go on
  kDenied = 77,        // the coordinator refuses it to this person
};

// Of what SIGKILL ended, in the way of the shell.
inline constexpr int kKilledCode = 128 + SIGKILL;

inline constexpr absl::string_view kNoRoomHerePayload = "trireme.no_room_here";

// `status` as one whose exit code is kNoRoomHere. What is made of it anew (Annotate) says less.
inline absl::Status NoRoomHere(absl::Status status) {
  status.SetPayload(kNoRoomHerePayload, absl::Cord());
  return status;
}

inline ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.GetPayload(kNoRoomHerePayload).has_value()) return kNoRoomHere;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInternal:
      return kInternal;
    case absl::StatusCode::kResourceExhausted:
      return kDoesNotFit;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return kBadInput;
    default:  // another attempt may fare better; Aborted is also what another process holds
      return kJobFailed;
  }
}

}  // namespace trireme::base
