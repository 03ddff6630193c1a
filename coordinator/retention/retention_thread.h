// The thread of retention, which may hang at a disk for as long as that likes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace trireme::coordinator {

struct RetentionWork {
  // Called at once and when the time it has returned (Unix ns) has come.
  std::function<int64_t(int64_t now_unix_ns)> turn;
  // Any thread. `turn` uses nothing of others from then on, and returns unless it hangs.
  std::function<void()> stop;
};

class RetentionThread {
 public:
  explicit RetentionThread(RetentionWork work,
                           std::chrono::milliseconds patience = std::chrono::seconds(5));
  // Stops it. One that hangs beyond the patience is left to itself, with `work`.
  ~RetentionThread();
  RetentionThread(const RetentionThread&) = delete;
  RetentionThread& operator=(const RetentionThread&) = delete;

 private:
  struct Shared;
  const std::chrono::milliseconds patience_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace trireme::coordinator
