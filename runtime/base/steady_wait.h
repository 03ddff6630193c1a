// Waits with a mutex of absl's whose end no setting of the time of day puts off. absl's own wait
// until a time of day (its release 20220623: FUTEX_CLOCK_REALTIME): set back by an hour meanwhile,
// they take an hour more.
#pragma once

#include <chrono>
#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace trireme::base {

// As absl::CondVar. Threads: any.
class SteadyCondVar {
 public:
  using Clock = std::chrono::steady_clock;

  // Either may return without cause.
  void Wait(absl::Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // True: it is so late.
  bool WaitUntil(absl::Mutex* mutex, Clock::time_point until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool WaitFor(absl::Mutex* mutex, Clock::duration time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return WaitUntil(mutex, Clock::now() + time);
  }
  void Signal() { changed_.notify_one(); }
  void SignalAll() { changed_.notify_all(); }

 private:
  std::condition_variable_any changed_;  // by CLOCK_MONOTONIC: libstdc++ has pthread_cond_clockwait
};

// For gRPC, which takes deadlines by the time of day and turns them back at once: so it is asked
// for with each call anew.
inline std::chrono::system_clock::time_point TimeOfDayAt(SteadyCondVar::Clock::time_point until) {
  using TimeOfDay = std::chrono::system_clock;
  return TimeOfDay::now() +
         std::chrono::duration_cast<TimeOfDay::duration>(until - SteadyCondVar::Clock::now());
}

// Something that happens once. Threads: any.
class SteadyEvent {
 public:
  void Notify();
  bool HasBeenNotified() const;
  // Whether it has happened by then.
  bool WaitFor(std::chrono::nanoseconds time) const;

 private:
  mutable absl::Mutex mutex_;
  mutable SteadyCondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace trireme::base
