#include "coordinator/client/call_status.h"

#include <unistd.h>

#include "absl/strings/cord.h"
#include "coordinator/client/error_details.h"
#include "runtime/base/text.h"

namespace trireme::client {
namespace {

constexpr const char* kSystemSocket = "/run/trireme/triremed.sock";

constexpr const char* kNeverSent = "trireme/never-sent";  // a payload's name

// A user whose own default socket has nobody behind it may want the daemon of the machine.
std::string WhereElse(const CallPlace& place) {
  const std::string system = base::Text("unix:", kSystemSocket);
  if (place.is_default && place.address != system && access(kSystemSocket, F_OK) == 0) {
    return base::Text("this machine has one: --coordinator ", system);
  }
  std::string where = "start one (triremed), or say where it is by --coordinator ADDRESS";
  if (place.in_clear) where += "; if it speaks TLS, give --ca-file FILE";
  if (place.nameless) {
    where += "; if it wants to see a certificate, give --certificate FILE and --key FILE";
  }
  return where;
}

std::string ReachedNobody(const CallError& error, const CallPlace& place) {
  std::string why = error.message;
  // "failed to connect to all addresses; last error: UNKNOWN: unix:/x: No such file or directory"
  if (why.find("last error: ") != std::string::npos) why = why.substr(why.rfind(": ") + 2);
  return base::Text("no coordinator answers at ", place.address, " (", why, "); ",
                    WhereElse(place));
}

// gRPC's words. A connection that was lost while the call was under way is told in others.
bool ReachedNoPort(const CallError& error) {
  return error.message.rfind("failed to connect to all addresses", 0) == 0 ||
         error.message.rfind("DNS resolution failed", 0) == 0;
}

// A job too large for any place names its field; a queue that is full names none.
bool IsAboutTheJob(const absl::Status& status) {
  for (const v1::ErrorDetail& detail : ErrorDetailsOf(status)) {
    if (detail.field().rfind("job", 0) == 0) return true;
  }
  return false;
}

}  // namespace

absl::Status StatusOfCall(const CallError& error, const CallPlace& place) {
  const auto code = static_cast<absl::StatusCode>(error.code);
  const auto details = UnpackErrorDetails(error.packed_details);
  std::string message = WithDetails(error.message, details);
  switch (code) {
    case absl::StatusCode::kUnavailable:
      // With details it is the daemon that speaks, else gRPC.
      if (details.empty()) message = ReachedNobody(error, place);
      break;
    case absl::StatusCode::kDeadlineExceeded:
      // Likewise: a disk may not have answered the daemon.
      if (!details.empty()) break;
      message = base::Text("the coordinator at ", place.address, " did not answer within ",
                           static_cast<double>(place.timeout.count()) / 1000,
                           " s; try again, or give it longer by --timeout SECONDS");
      break;
    case absl::StatusCode::kUnauthenticated:
      if (message.find("--token-file") == std::string::npos) {
        message += "; give a token that it knows by --token-file FILE";
      }
      break;
    case absl::StatusCode::kUnimplemented:
      message = base::Text("the coordinator at ", place.address,
                           " does not know this call: it is of another version (", message, ")");
      break;
    default:
      break;
  }
  if (message.empty())
    message = base::Text("the coordinator at ", place.address, " gave no reason");
  absl::Status status(code, message);
  AttachErrorDetails(status, error.packed_details);
  if (code == absl::StatusCode::kUnavailable && details.empty() && ReachedNoPort(error)) {
    status.SetPayload(kNeverSent, absl::Cord());
  }
  return status;
}

bool NeverSent(const absl::Status& status) { return status.GetPayload(kNeverSent).has_value(); }

base::ExitCode ExitCodeOfCall(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return IsAboutTheJob(status) ? base::kDoesNotFit : base::kUnreachable;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return base::kUnreachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return base::kDenied;
    case absl::StatusCode::kUnknown:
      return base::kInternal;
    default:
      return base::ExitCodeOf(status);
  }
}

}  // namespace trireme::client
