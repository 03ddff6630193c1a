// Between the door of the unix socket and gRPC, which would keep whoever connects for as long as he
// likes: so many connections of each user, and none that does not begin to speak in time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {

struct GateBounds {
  // Connections of one user that are open, of others than root and the daemon's own user.
  size_t of_user = 64;
  // Until the first words of HTTP/2 are there, of anybody.
  std::chrono::milliseconds speaks_within{10000};
  // A connection with this descriptor or a higher one is refused, again of others than those two:
  // the lowest free number is given to each. 0: half of what the process may have.
  int first_kept_back = 0;
};

// A connection that was passed: the gate has a copy of it, so that close alone ends nothing.
void EndConnection(int fd);

class ConnectionGate {
 public:
  // `pass` gets each connection that speaks, whose descriptor is then its own, on the gate's
  // thread: it must not block. A user's connection counts until it is closed, by whomever.
  using Pass = std::function<void(int fd, uid_t uid)>;
  ConnectionGate(const GateBounds& bounds, Pass pass);
  // What has not been passed is closed.
  ~ConnectionGate();
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  // Takes `fd`, which does not block. Any thread; never blocks. Who is refused is told why by
  // HTTP/2's GOAWAY.
  void Take(int fd, uid_t uid);

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    uid_t uid = 0;
    Clock::time_point speaks_until;  // while it is ours
    bool passed = false;             // then the descriptor is a copy, which tells of the end
  };
  void Run();
  void Hear(int fd);
  void EndSilent();
  int WaitMs();
  void Forget(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Watch(int fd, uint32_t events, const Connection& connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GateBounds bounds_;
  const Pass pass_;
  const int epoll_fd_;
  const int wake_fd_;
  absl::Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);  // by descriptor of ours
  std::map<uid_t, size_t> of_user_ ABSL_GUARDED_BY(mutex_);        // none is 0
  std::thread thread_;
};

}  // namespace trireme::coordinator
