// The listening socket, whose connections are handed out.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/task_thread/accept_thread.h"

namespace trireme::coordinator {

struct HostAndPort {
  std::string host;  // without brackets
  int port = 0;
};

// "HOST:PORT", "[IPV6]:PORT". InvalidArgument: another form.
absl::StatusOr<HostAndPort> ParseAddress(const std::string& address);
// A loopback address, or a name all of whose addresses are.
bool IsLoopbackHost(const std::string& host);
// "::1" as it stands in a URL: "[::1]".
std::string HostInUrl(const std::string& host);

class Listener {
 public:
  // `take` gets each connection's descriptor, which is then its own; it must not block.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const HostAndPort& at,
                                                        const std::function<void(int fd)>& take);
  int port() const { return port_; }

 private:
  Listener(int fd, const std::function<void(int fd)>& take);

  const int port_;
  AcceptThread thread_;
};

}  // namespace trireme::coordinator
