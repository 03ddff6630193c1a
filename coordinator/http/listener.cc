#include "coordinator/http/listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "coordinator/http/socket_stream.h"

namespace trireme::coordinator {
namespace {

constexpr int kBacklog = 128;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses Resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &freeaddrinfo};
}

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(four.sin_addr.s_addr) >> 24) == 127;
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  return address.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
}

// -1, with errno.
int ListenAt(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

absl::StatusOr<HostAndPort> ParseAddress(const std::string& address) {
  HostAndPort at;
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  at.host = address.substr(0, colon);
  const bool bracketed = at.host.size() > 2 && at.host.front() == '[' && at.host.back() == ']';
  if (bracketed) at.host = at.host.substr(1, at.host.size() - 2);
  const bool host_fits = !at.host.empty() && (bracketed || at.host.find(':') == std::string::npos);
  if (!host_fits || port.empty() || !absl::SimpleAtoi(port, &at.port) || at.port < 0 ||
      at.port > 65535) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' is no address to listen at; expected HOST:PORT, as in 127.0.0.1:8470", address));
  }
  return at;
}

bool IsLoopbackHost(const std::string& host) {
  const Addresses found = Resolve(host, 0);
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    if (!IsLoopback(*one->ai_addr)) return false;
  }
  return found != nullptr;
}

std::string HostInUrl(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const HostAndPort& at,
                                                         const std::function<void(int fd)>& take) {
  const Addresses found = Resolve(at.host, at.port);
  int fd = -1;
  errno = EADDRNOTAVAIL;
  for (const addrinfo* one = found.get(); one != nullptr && fd < 0; one = one->ai_next) {
    fd = ListenAt(*one);
  }
  if (fd < 0) {
    return absl::FailedPreconditionError(
        fmt::format("cannot listen for HTTP at {}:{}: {}; choose another address by --http",
                    HostInUrl(at.host), at.port, std::strerror(errno)));
  }
  return std::unique_ptr<Listener>(new Listener(fd, take));
}

Listener::Listener(int fd, const std::function<void(int fd)>& take)
    : port_(LocalOf(fd).second), thread_("http listener", fd, [take](int connection) {
        const int yes = 1;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        take(connection);
      }) {}

}  // namespace trireme::coordinator
