// A thread with a bounded queue of tasks and a clock: the owner of a piece of state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/process/fair_queue.h"
#include "runtime/base/steady_wait.h"

namespace trireme::coordinator {

// CLOCK_REALTIME in ns since 1970: what is stored and shown.
int64_t NowUnixNs();

struct TaskThreadOptions {
  std::string name;  // at most 15 characters; shown by ps and in messages
  size_t most_tasks = 1000;
  size_t most_of_owner = 0;  // of these, of one owner that has a name; 0: any number
  // Called on the thread after each task and when the time it has last returned (NowUnixNs) has
  // come, at times sooner; 0: only after tasks. May be absent.
  std::function<int64_t(int64_t now_unix_ns)> between;
};

// Post may be called from any thread, its own too.
class TaskThread {
 public:
  using Task = std::function<void()>;

  explicit TaskThread(TaskThreadOptions options);
  // Runs what is queued, then ends.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Never blocks. ResourceExhausted: the queue, or this owner's part of it, is full, `task` is
  // dropped. The tasks of one owner run in order, owners take turns: who posts much holds nobody
  // else up.
  absl::Status Post(Task task, const std::string& owner = "");
  // Also if the queue is full: for answers, of which there are no more than were asked for.
  void PostAnswer(Task task);
  // Tasks that wait.
  size_t waiting() const;

 private:
  void Run();

  const TaskThreadOptions options_;
  mutable absl::Mutex mutex_;
  base::SteadyCondVar changed_;
  FairQueue<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trireme::coordinator
