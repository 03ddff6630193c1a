// epoll: edges of what is yet to speak, and the hang-up of copies of what was passed. gRPC shuts a
// connection down before it closes it, so a copy keeps nothing open.
#include "coordinator/control_api/connection_gate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/calls/access.h"

namespace trireme::coordinator {
namespace {

// What each client says first, and the head of the frame that follows.
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHead = 9, kTypeAt = 3;
constexpr char kSettings = 4, kGoAway = 7, kEnhanceYourCalm = 11;

int FirstKeptBack() {
  rlimit most{};
  if (getrlimit(RLIMIT_NOFILE, &most) != 0) return INT32_MAX;
  return static_cast<int>(std::min<rlim_t>(most.rlim_cur / 2, INT32_MAX));
}

std::string FrameHead(size_t length, char type) {
  std::string head(kFrameHead, '\0');
  head[1] = static_cast<char>(length >> 8);
  head[2] = static_cast<char>(length);
  head[kTypeAt] = type;
  return head;
}

void Refuse(int fd, const std::string& why) {
  std::string words = FrameHead(0, kSettings) + FrameHead(8 + why.size(), kGoAway);
  words += std::string(7, '\0') + kEnhanceYourCalm + why;
  // What does not fit at once is not worth a wait.
  (void)send(fd, words.data(), words.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  close(fd);
}

enum class Said { kNothing, kEnough, kElse };

Said SaidBy(int fd) {
  char words[kPreface.size() + kFrameHead];
  const ssize_t got = recv(fd, words, sizeof words, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Said::kNothing : Said::kElse;
  if (got == 0) return Said::kElse;  // it has gone
  const auto size = static_cast<size_t>(got);
  if (kPreface.substr(0, size) != std::string_view(words, std::min(size, kPreface.size()))) {
    return Said::kElse;
  }
  if (size < sizeof words) return Said::kNothing;
  return words[kPreface.size() + kTypeAt] == kSettings ? Said::kEnough : Said::kElse;
}

}  // namespace

void EndConnection(int fd) {
  (void)shutdown(fd, SHUT_RDWR);
  close(fd);
}

ConnectionGate::ConnectionGate(const GateBounds& bounds, Pass pass)
    : bounds_(bounds),
      pass_(std::move(pass)),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event wake{};
  wake.events = EPOLLIN;
  wake.data.fd = wake_fd_;
  (void)epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &wake);
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "socket gate");
}

ConnectionGate::~ConnectionGate() {
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
  thread_.join();
  for (const auto& [fd, connection] : connections_) close(fd);
  close(epoll_fd_);
  close(wake_fd_);
}

bool ConnectionGate::Watch(int fd, uint32_t events, const Connection& connection) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) return false;
  connections_[fd] = connection;
  ++of_user_[connection.uid];
  return true;
}

void ConnectionGate::Forget(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  const auto count = of_user_.find(found->second.uid);
  if (--count->second == 0) of_user_.erase(count);
  connections_.erase(found);
  (void)epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void ConnectionGate::Take(int fd, uid_t uid) {
  const int kept_back = bounds_.first_kept_back > 0 ? bounds_.first_kept_back : FirstKeptBack();
  if (!IsLocalAdmin(uid) && fd >= kept_back) {
    return Refuse(fd, "too many connections are open at this daemon; try again later");
  }
  const absl::MutexLock lock(&mutex_);
  const auto open = of_user_.find(uid);
  const size_t of_user = open == of_user_.end() ? 0 : open->second;
  if (!IsLocalAdmin(uid) && of_user >= bounds_.of_user) {
    return Refuse(fd, fmt::format("{} connections of yours are open, as many as one user may have "
                                  "(--max-connections-of-user); close some",
                                  of_user));
  }
  const Connection connection{uid, Clock::now() + bounds_.speaks_within, false};
  if (!Watch(fd, EPOLLIN | EPOLLRDHUP | EPOLLET, connection)) return Refuse(fd, "no memory for it");
  // The thread counts the time of the first one from now.
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
}

void ConnectionGate::Run() {
  epoll_event events[64];
  while (true) {
    const int count = epoll_wait(epoll_fd_, events, 64, WaitMs());
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      uint64_t ignored = 0;
      if (fd == wake_fd_) {
        (void)!read(wake_fd_, &ignored, sizeof ignored);
      } else {
        Hear(fd);
      }
    }
    EndSilent();
    const absl::MutexLock lock(&mutex_);
    if (ending_) return;
  }
}

void ConnectionGate::Hear(int fd) {
  uid_t uid = 0;
  {
    const absl::MutexLock lock(&mutex_);
    const auto found = connections_.find(fd);
    if (found == connections_.end()) return;
    const Said said = found->second.passed ? Said::kElse : SaidBy(fd);
    if (said == Said::kNothing) return;
    uid = found->second.uid;
    Forget(fd);
    const int copy = said == Said::kEnough ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (copy < 0 || !Watch(copy, 0, {uid, {}, true})) {
      if (copy >= 0) close(copy);
      close(fd);
      return;
    }
  }
  pass_(fd, uid);
}

void ConnectionGate::EndSilent() {
  const absl::MutexLock lock(&mutex_);
  const auto now = Clock::now();
  std::vector<int> silent;
  for (const auto& [fd, connection] : connections_) {
    if (!connection.passed && connection.speaks_until <= now) silent.push_back(fd);
  }
  for (const int fd : silent) {
    Forget(fd);
    close(fd);
  }
}

int ConnectionGate::WaitMs() {
  const absl::MutexLock lock(&mutex_);
  auto next = Clock::time_point::max();
  for (const auto& [fd, connection] : connections_) {
    if (!connection.passed) next = std::min(next, connection.speaks_until);
  }
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60000));
}

}  // namespace trireme::coordinator
