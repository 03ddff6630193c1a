// Where the daemon's HTTP listens.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trireme::coordinator {

struct HostAndPort {
  std::string host;  // without brackets
  int port = 0;

  // As it stands in a URL: "[::1]:8470".
  std::string Text() const;
};

// "HOST:PORT", "[IPV6]:PORT". InvalidArgument: another form.
absl::StatusOr<HostAndPort> ParseAddress(const std::string& address);
// A loopback address, or a name all of whose addresses are. Asks the resolver.
bool IsLoopbackHost(const std::string& host);

}  // namespace trireme::coordinator
