// accept4 in a thread that an eventfd wakes for its end.
#include "coordinator/http/listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "coordinator/http/socket_stream.h"

namespace trireme::coordinator {
namespace {

constexpr int kBacklog = 128;
constexpr std::chrono::milliseconds kPauseWithoutDescriptors(50);

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
                                                         std::function<void(int fd)> take) {
  const Addresses found = Resolve(at.host, at.port);
  int fd = -1;
  errno = EADDRNOTAVAIL;
  for (const addrinfo* one = found.get(); one != nullptr && fd < 0; one = one->ai_next) {
    fd = ListenAt(*one);
  }
  const int wake_fd = fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC);
  if (wake_fd < 0) {
    const absl::Status error = absl::FailedPreconditionError(
        fmt::format("cannot listen for HTTP at {}:{}: {}; choose another address by --http",
                    HostInUrl(at.host), at.port, std::strerror(errno)));
    if (fd >= 0) close(fd);
    return error;
  }
  return std::unique_ptr<Listener>(new Listener(fd, wake_fd, std::move(take)));
}

Listener::Listener(int fd, int wake_fd, std::function<void(int fd)> take)
    : fd_(fd), wake_fd_(wake_fd), take_(std::move(take)), port_(LocalOf(fd).second) {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "http listener");
}

Listener::~Listener() {
  const uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof one) < 0) shutdown(fd_, SHUT_RDWR);
  thread_.join();
  close(fd_);
  close(wake_fd_);
}

void Listener::Run() {
  while (true) {
    pollfd entries[] = {{fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (poll(entries, 2, -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      const int yes = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      take_(fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      std::this_thread::sleep_for(kPauseWithoutDescriptors);
    } else if (errno == EINVAL || errno == EBADF) {
      return;
    }
  }
}

}  // namespace trireme::coordinator
