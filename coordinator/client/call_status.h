// What went wrong in a call, in words for people.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"

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
  std::chrono::milliseconds timeout{0};
};

absl::Status StatusOfCall(const CallError& error, const CallPlace& place);

}  // namespace trireme::client
