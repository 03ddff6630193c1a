// accept4 in a thread that an eventfd wakes for its end.
#include "coordinator/process/accept_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <utility>

namespace trireme::coordinator {
namespace {

constexpr std::chrono::milliseconds kPauseWithoutDescriptors(50);

}  // namespace

AcceptThread::AcceptThread(const std::string& name, int fd, std::function<void(int fd)> take)
    : fd_(fd), wake_fd_(eventfd(0, EFD_CLOEXEC)), take_(std::move(take)) {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

AcceptThread::~AcceptThread() {
  const uint64_t one = 1;
  // Where there is no eventfd, accept fails on a socket that is shut down.
  if (write(wake_fd_, &one, sizeof one) < 0) shutdown(fd_, SHUT_RDWR);
  thread_.join();
  close(fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

void AcceptThread::Run() {
  while (true) {
    pollfd entries[] = {{fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (poll(entries, 2, -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      take_(fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      std::this_thread::sleep_for(kPauseWithoutDescriptors);
    } else if (errno == EINVAL || errno == EBADF) {
      return;
    }
  }
}

}  // namespace trireme::coordinator
