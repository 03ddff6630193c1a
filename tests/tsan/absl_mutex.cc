// TSan does not see into Debian's abseil: to it, what an absl::Mutex guards is not guarded at all.
// In programs under TSan the functions here come before the library's: they tell TSan of each lock
// and unlock, and hand on to the library.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/base/options.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

// Of libtsan, though no header of gcc 12 has them: all before a release is seen after an acquire of
// the same address.
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);

namespace {

#define TRIREME_TEXT_OF(name) #name
#define TRIREME_TEXT(name) TRIREME_TEXT_OF(name)

// A function of the library by its mangled name from the class on.
template <typename Function>
Function* InLibrary(const std::string& name, const char* qualifier = "") {
  const std::string space = TRIREME_TEXT(ABSL_OPTION_INLINE_NAMESPACE_NAME);
  const std::string mangled =
      std::string("_ZN") + qualifier + "4absl" + std::to_string(space.size()) + space + name;
  void* const found = dlsym(RTLD_NEXT, mangled.c_str());
  if (found == nullptr) {
    std::fprintf(stderr, "tests/tsan/absl_mutex.cc: abseil has no %s; is this another version?\n",
                 mangled.c_str());
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

// What the library calls of itself meanwhile is part of the one call.
thread_local bool inside = false;

class Inside {
 public:
  Inside() { inside = true; }
  ~Inside() { inside = false; }
};

// TSan looks at nothing between its pre and post: there the library evaluates conditions for other
// threads.
template <typename Call>
void Locked(void* mutex, unsigned how, Call call) {
  if (inside) return static_cast<void>(call());
  const Inside mark;
  __tsan_mutex_pre_lock(mutex, how);
  call();
  __tsan_mutex_post_lock(mutex, how, 0);
}

template <typename Call>
void Unlocked(void* mutex, unsigned how, Call call) {
  if (inside) return call();
  const Inside mark;
  __tsan_mutex_pre_unlock(mutex, how);
  call();
  __tsan_mutex_post_unlock(mutex, how);
}

template <typename Call>
bool TriedLock(void* mutex, unsigned how, Call call) {
  if (inside) return call();
  const Inside mark;
  how |= __tsan_mutex_try_lock;
  __tsan_mutex_pre_lock(mutex, how);
  const bool locked = call();
  __tsan_mutex_post_lock(mutex, locked ? how : how | __tsan_mutex_try_lock_failed, 0);
  return locked;
}

// Waits give the mutex, held by a writer, away and have it again at their end.
template <typename Call>
auto Waited(void* mutex, Call call) -> decltype(call()) {
  if (inside) return call();
  const Inside mark;
  __tsan_mutex_pre_unlock(mutex, 0);
  __tsan_mutex_post_unlock(mutex, 0);
  __tsan_mutex_pre_lock(mutex, 0);
  struct Again {
    void* mutex;
    ~Again() { __tsan_mutex_post_lock(mutex, 0, 0); }
  } again{mutex};
  return call();
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const real = InLibrary<void(Mutex*)>("5Mutex4LockEv");
  Locked(this, 0, [this] { real(this); });
}

void Mutex::Unlock() {
  static auto* const real = InLibrary<void(Mutex*)>("5Mutex6UnlockEv");
  Unlocked(this, 0, [this] { real(this); });
}

bool Mutex::TryLock() {
  static auto* const real = InLibrary<bool(Mutex*)>("5Mutex7TryLockEv");
  return TriedLock(this, 0, [this] { return real(this); });
}

void Mutex::ReaderLock() {
  static auto* const real = InLibrary<void(Mutex*)>("5Mutex10ReaderLockEv");
  Locked(this, __tsan_mutex_read_lock, [this] { real(this); });
}

void Mutex::ReaderUnlock() {
  static auto* const real = InLibrary<void(Mutex*)>("5Mutex12ReaderUnlockEv");
  Unlocked(this, __tsan_mutex_read_lock, [this] { real(this); });
}

bool Mutex::ReaderTryLock() {
  static auto* const real = InLibrary<bool(Mutex*)>("5Mutex13ReaderTryLockEv");
  return TriedLock(this, __tsan_mutex_read_lock, [this] { return real(this); });
}

void Mutex::LockWhen(const Condition& condition) {
  static auto* const real =
      InLibrary<void(Mutex*, const Condition&)>("5Mutex8LockWhenERKNS0_9ConditionE");
  Locked(this, 0, [&] { real(this, condition); });
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const real = InLibrary<bool(Mutex*, const Condition&, Duration)>(
      "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  bool held = false;
  Locked(this, 0, [&] { held = real(this, condition, timeout); });
  return held;
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static auto* const real = InLibrary<bool(Mutex*, const Condition&, Time)>(
      "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  bool held = false;
  Locked(this, 0, [&] { held = real(this, condition, deadline); });
  return held;
}

void Mutex::Await(const Condition& condition) {
  static auto* const real =
      InLibrary<void(Mutex*, const Condition&)>("5Mutex5AwaitERKNS0_9ConditionE");
  Waited(this, [&] { real(this, condition); });
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static auto* const real = InLibrary<bool(Mutex*, const Condition&, Duration)>(
      "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  return Waited(this, [&] { return real(this, condition, timeout); });
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static auto* const real = InLibrary<bool(Mutex*, const Condition&, Time)>(
      "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  return Waited(this, [&] { return real(this, condition, deadline); });
}

void CondVar::Wait(Mutex* mutex) {
  static auto* const real = InLibrary<void(CondVar*, Mutex*)>("7CondVar4WaitEPNS0_5MutexE");
  Waited(mutex, [&] { real(this, mutex); });
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static auto* const real = InLibrary<bool(CondVar*, Mutex*, Duration)>(
      "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  return Waited(mutex, [&] { return real(this, mutex, timeout); });
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* const real =
      InLibrary<bool(CondVar*, Mutex*, Time)>("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  return Waited(mutex, [&] { return real(this, mutex, deadline); });
}

// Who finds it notified takes no lock.
void Notification::Notify() {
  static auto* const real = InLibrary<void(Notification*)>("12Notification6NotifyEv");
  __tsan_release(this);
  real(this);
}

void Notification::WaitForNotification() const {
  static auto* const real =
      InLibrary<void(const Notification*)>("12Notification19WaitForNotificationEv", "K");
  real(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static auto* const real = InLibrary<bool(const Notification*, Duration)>(
      "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE", "K");
  const bool notified = real(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl
