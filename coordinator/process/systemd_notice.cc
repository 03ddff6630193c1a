#include "coordinator/process/systemd_notice.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace trireme::coordinator {
namespace {

// A year, in microseconds: whoever asks for more asks for none.
constexpr int64_t kLongestUs = int64_t{365} * 86400 * 1000000;

// 0: not set, or no such number.
int64_t NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return 0;
  int64_t number = 0;
  const char* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, number);
  return parsed.ec == std::errc() && parsed.ptr == end && number > 0 ? number : 0;
}

}  // namespace

void TellSystemd(const std::string& state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || std::strlen(path) < 2 || std::strlen(path) >= sizeof address.sun_path) {
    return;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, std::strlen(path));
  // An abstract name begins with a zero byte, which systemd writes as '@'.
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
         reinterpret_cast<const sockaddr*>(&address), length);
  close(fd);
}

// Four notices in the time that systemd waits for one.
Watchdog::Watchdog() {
  const int64_t wait_us = NumberIn("WATCHDOG_USEC");
  const bool meant = std::getenv("WATCHDOG_PID") == nullptr || NumberIn("WATCHDOG_PID") == getpid();
  if (meant && wait_us <= kLongestUs) interval_ = std::chrono::microseconds(wait_us) / 4;
}

std::optional<std::chrono::nanoseconds> Watchdog::Turn() {
  if (interval_.count() == 0) return std::nullopt;
  const Clock::time_point now = Clock::now();
  if (now >= due_) {
    TellSystemd("WATCHDOG=1");
    due_ = now + interval_;
  }
  return due_ - now;
}

}  // namespace trireme::coordinator
