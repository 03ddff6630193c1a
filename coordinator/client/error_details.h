// The details of an error of the daemon: what was wrong in which field, several at once. They
// travel as v1::ErrorStatus in gRPC's `grpc-status-details-bin`; both ends use these functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trireme/v1/control.pb.h"

namespace trireme::client {

// For the third argument of grpc::Status.
std::string PackErrorDetails(absl::StatusCode code, const std::string& message,
                             const std::vector<v1::ErrorDetail>& details);

// Those in `packed`, without those of other types; none if it is empty or of another making.
std::vector<v1::ErrorDetail> UnpackErrorDetails(const std::string& packed);

// How long to wait before the same is asked again, as the details say; 0: they say nothing.
uint64_t RetryAfterMs(const std::string& packed);

// Keeps them with a status, so that programs need not read its message.
void AttachErrorDetails(absl::Status& status, const std::string& packed);
std::vector<v1::ErrorDetail> ErrorDetailsOf(const absl::Status& status);

// `message`, then what the details say beyond it: one "FIELD: MESSAGE" a line.
std::string WithDetails(const std::string& message, const std::vector<v1::ErrorDetail>& details);

}  // namespace trireme::client
