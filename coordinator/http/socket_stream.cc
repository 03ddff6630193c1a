// poll() before each transfer, with what is left of the deadline.
#include "coordinator/http/socket_stream.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace trireme::coordinator {
namespace {

bool WaitUntil(int fd, int16_t what, SocketStream::Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - SocketStream::Clock::now());
    if (left.count() <= 0) return false;
    pollfd entry{fd, what, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left.count(), 60000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool TryAgain() { return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK; }

std::pair<std::string, int> NameOf(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  if (ask(fd, generic, &length) != 0 ||
      getnameinfo(generic, length, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {"", 0};
  }
  return {host, std::atoi(port)};
}

}  // namespace

SocketStream::~SocketStream() { close(fd_); }

void SocketStream::LimitReads(Clock::time_point deadline, size_t most_bytes) {
  read_deadline_ = deadline;
  bytes_left_ = most_bytes;
}

ssize_t SocketStream::Read(char* to, size_t most) {
  if (bytes_left_ == 0) return -1;
  while (begin_ == end_) {
    if (!WaitUntil(fd_, POLLIN, read_deadline_)) return -1;
    const ssize_t got = recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got == 0) return 0;
    if (got < 0 && !TryAgain()) return -1;
    if (got < 0) continue;
    begin_ = 0;
    end_ = static_cast<size_t>(got);
  }
  const size_t count = std::min({most, end_ - begin_, bytes_left_});
  std::memcpy(to, buffer_.data() + begin_, count);
  begin_ += count;
  bytes_left_ -= count;
  return static_cast<ssize_t>(count);
}

bool SocketStream::Write(const char* from, size_t count) {
  while (count > 0) {
    if (!WaitUntil(fd_, POLLOUT, write_deadline_)) return false;
    const ssize_t sent = send(fd_, from, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && !TryAgain()) return false;
    if (sent <= 0) continue;
    from += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

bool SocketStream::ReadableWithin(std::chrono::milliseconds wait) const {
  return buffered() || WaitUntil(fd_, POLLIN, Clock::now() + wait);
}

void SocketStream::Linger(std::chrono::milliseconds longest) {
  shutdown(fd_, SHUT_WR);
  LimitReads(Clock::now() + longest, 1 << 20);
  char dropped[4096];
  while (Read(dropped, sizeof dropped) > 0) {
  }
}

std::pair<std::string, int> PeerOf(int fd) { return NameOf(fd, &getpeername); }
std::pair<std::string, int> LocalOf(int fd) { return NameOf(fd, &getsockname); }

}  // namespace trireme::coordinator
