// The listening socket, and the thread that hands its connections out.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

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
                                                        std::function<void(int fd)> take);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return port_; }

 private:
  Listener(int fd, int wake_fd, std::function<void(int fd)> take);
  void Run();

  const int fd_;
  const int wake_fd_;
  const std::function<void(int fd)> take_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace trireme::coordinator
