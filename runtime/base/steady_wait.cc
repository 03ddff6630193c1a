#include "runtime/base/steady_wait.h"

namespace trireme::base {
namespace {

// By the names that the standard library calls.
struct Lockable {
  absl::Mutex* mutex;
  void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Lock(); }
  void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Unlock(); }
};

}  // namespace

void SteadyCondVar::Wait(absl::Mutex* mutex) {
  Lockable lock{mutex};
  changed_.wait(lock);
}

bool SteadyCondVar::WaitUntil(absl::Mutex* mutex, Clock::time_point until) {
  Lockable lock{mutex};
  return changed_.wait_until(lock, until) == std::cv_status::timeout;
}

void SteadyEvent::Notify() {
  const absl::MutexLock lock(&mutex_);
  notified_ = true;
  changed_.SignalAll();
}

bool SteadyEvent::HasBeenNotified() const {
  const absl::MutexLock lock(&mutex_);
  return notified_;
}

bool SteadyEvent::WaitFor(std::chrono::nanoseconds time) const {
  const absl::MutexLock lock(&mutex_);
  const auto until = SteadyCondVar::Clock::now() + time;
  bool late = false;
  while (!notified_ && !late) late = changed_.WaitUntil(&mutex_, until);
  return notified_;
}

}  // namespace trireme::base
