// One mutex; the wait is for a task, the end, or the time.
#include "coordinator/process/task_thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace trireme::coordinator {
namespace {

// A clock that was set back must not stop the thread: it acts so often at least.
constexpr std::chrono::nanoseconds kLongestWait = std::chrono::seconds(5);

}  // namespace

int64_t NowUnixNs() { return absl::GetCurrentTimeNanos(); }

TaskThread::TaskThread(TaskThreadOptions options)
    : options_(std::move(options)), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), options_.name.substr(0, 15).c_str());
}

TaskThread::~TaskThread() {
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

absl::Status TaskThread::Post(Task task, const std::string& owner) {
  const absl::MutexLock lock(&mutex_);
  if (tasks_.size() >= options_.most_tasks) {
    return absl::ResourceExhaustedError(fmt::format(
        "{} requests wait for the {} already; try again later", tasks_.size(), options_.name));
  }
  const size_t of_owner = owner.empty() ? 0 : tasks_.SizeOf(owner);
  if (options_.most_of_owner > 0 && of_owner >= options_.most_of_owner) {
    return absl::ResourceExhaustedError(fmt::format(
        "{} requests of yours wait for the {} already; try again later", of_owner, options_.name));
  }
  tasks_.Add(std::move(task), owner);
  changed_.Signal();
  return absl::OkStatus();
}

void TaskThread::PostAnswer(Task task) {
  const absl::MutexLock lock(&mutex_);
  tasks_.Add(std::move(task), "");
  changed_.Signal();
}

size_t TaskThread::waiting() const {
  const absl::MutexLock lock(&mutex_);
  return tasks_.size();
}

void TaskThread::Run() {
  int64_t due = options_.between ? options_.between(NowUnixNs()) : 0;
  while (true) {
    Task task;
    bool waited = false;
    {
      const absl::MutexLock lock(&mutex_);
      const std::chrono::nanoseconds left(due - NowUnixNs());
      const auto until = std::chrono::steady_clock::now() +
                         (due == 0 ? kLongestWait : std::min(kLongestWait, left));
      while (tasks_.size() == 0 && !ending_ && !waited) {
        waited = changed_.WaitUntil(&mutex_, until);
      }
      if (tasks_.size() > 0) {
        task = tasks_.Take();
      } else if (ending_) {
        return;
      }
    }
    if (task) task();
    if (options_.between && (task || (due != 0 && waited))) {
      due = options_.between(NowUnixNs());
    }
  }
}

}  // namespace trireme::coordinator
