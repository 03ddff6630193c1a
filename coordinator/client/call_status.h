// What went wrong in a call, in words for people.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/exit_code.h"

namespace trireme::client {

// As gRPC gave it.
struct CallError {
  int code = 0;  // gRPC's and absl's codes are the same numbers
  std::string message;
  std::string packed_details;
};

struct CallPlace {
  std::string address;
  bool is_default = false;  // nobody named it
  bool in_clear = false;    // TCP without TLS
  bool nameless = false;    // TLS without a certificate of ours
  std::chrono::milliseconds timeout{0};
};

// Keeps the details (error_details.h).
absl::Status StatusOfCall(const CallError& error, const CallPlace& place);

// Whether the call never left this machine, for no connection was made: the daemon has not acted.
bool NeverSent(const absl::Status& status);

// Of a program that ends because of it.
base::ExitCode ExitCodeOfCall(const absl::Status& status);

}  // namespace trireme::client
