// For threads that may be left behind in a file system: they reach who asked while it is there, and
// are told nothing when it has gone.
#pragma once

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace trireme::coordinator {

// Threads: any. Those that hang share it with who asked.
template <typename T>
class WhileThere {
 public:
  explicit WhileThere(T& it) : it_(&it) {}

  // do_it(T&), if it is there; Close waits for its end.
  template <typename DoIt>
  void Do(DoIt&& do_it) {
    const absl::MutexLock lock(&mutex_);
    if (it_ != nullptr) std::forward<DoIt>(do_it)(*it_);
  }
  // Nothing is done from now on.
  void Close() {
    const absl::MutexLock lock(&mutex_);
    it_ = nullptr;
  }

 private:
  absl::Mutex mutex_;
  T* it_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
