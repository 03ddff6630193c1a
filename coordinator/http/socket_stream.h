// A connection with deadlines: what a peer does byte by byte does not renew them.
#pragma once

#include <array>
#include <chrono>
#include <string>

namespace trireme::coordinator {

// One thread. Owns the socket, which does not block.
class SocketStream {
 public:
  using Clock = std::chrono::steady_clock;

  explicit SocketStream(int fd) : fd_(fd) {}
  ~SocketStream();
  SocketStream(const SocketStream&) = delete;
  SocketStream& operator=(const SocketStream&) = delete;

  // What Read may take from now on, in time and bytes.
  void LimitReads(Clock::time_point deadline, size_t most_bytes);
  void LimitReadBytes(size_t most_bytes) { bytes_left_ = most_bytes; }
  void LimitWrites(Clock::time_point deadline) { write_deadline_ = deadline; }

  // At least one byte; 0: the end; -1: an error, or a limit is reached.
  ssize_t Read(char* to, size_t most);
  // All of it, or false.
  bool Write(const char* from, size_t count);
  // Something has come, or the peer is gone.
  bool ReadableWithin(std::chrono::milliseconds wait) const;
  bool buffered() const { return begin_ < end_; }
  int fd() const { return fd_; }
  // Takes what the peer still sends, at most so long, so that the answer is not lost with a reset.
  void Linger(std::chrono::milliseconds longest);

 private:
  const int fd_;
  std::array<char, 8192> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t bytes_left_ = 0;
  Clock::time_point read_deadline_;
  Clock::time_point write_deadline_;
};

// IP address and port of the peer, or of our side.
std::pair<std::string, int> PeerOf(int fd);
std::pair<std::string, int> LocalOf(int fd);

}  // namespace trireme::coordinator
