// Answers of threads that may be left behind in a file system: given while the one who asked is
// there still, however late.
#pragma once

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/process/task_thread.h"

namespace trireme::coordinator {

// Threads: any. The threads that hang have it with who asked.
class LateAnswers {
 public:
  explicit LateAnswers(TaskThread& thread) : thread_(&thread) {}

  void Post(TaskThread::Task task) {
    const absl::MutexLock lock(&mutex_);
    if (thread_ != nullptr) thread_->PostAnswer(std::move(task));
  }
  // None comes after it.
  void Close() {
    const absl::MutexLock lock(&mutex_);
    thread_ = nullptr;
  }

 private:
  absl::Mutex mutex_;
  TaskThread* thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trireme::coordinator
