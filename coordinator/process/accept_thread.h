// A thread that takes connections in and hands them out, until its owner ends.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace trireme::coordinator {

class AcceptThread {
 public:
  // `take` gets each connection's descriptor, which is then its own and does not block; it must not
  // block either. `fd` is a socket that listens and does not block, and is ours from now on.
  // `name`: of the thread, at most 15 characters.
  AcceptThread(const std::string& name, int fd, std::function<void(int fd)> take);
  ~AcceptThread();
  AcceptThread(const AcceptThread&) = delete;
  AcceptThread& operator=(const AcceptThread&) = delete;

 private:
  void Run();

  const int fd_;
  const int wake_fd_;
  const std::function<void(int fd)> take_;
  std::thread thread_;
};

}  // namespace trireme::coordinator
