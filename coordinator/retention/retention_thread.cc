#include "coordinator/retention/retention_thread.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "runtime/base/steady_wait.h"

namespace trireme::coordinator {

struct RetentionThread::Shared {
  RetentionWork work;
  base::SteadyEvent stopped;
  base::SteadyEvent ended;
};

RetentionThread::RetentionThread(RetentionWork work, std::chrono::milliseconds patience)
    : patience_(patience), shared_(std::make_shared<Shared>()) {
  shared_->work = std::move(work);
  std::thread([shared = shared_] {
    pthread_setname_np(pthread_self(), "retention");
    while (!shared->stopped.HasBeenNotified()) {
      const int64_t now = absl::GetCurrentTimeNanos();
      const int64_t next = shared->work.turn(now);
      shared->stopped.WaitFor(std::chrono::nanoseconds(next - absl::GetCurrentTimeNanos()));
    }
    shared->ended.Notify();
  }).detach();
}

RetentionThread::~RetentionThread() {
  shared_->work.stop();
  shared_->stopped.Notify();
  if (shared_->ended.WaitFor(patience_)) return;
  spdlog::warn("retention hangs at the disk of the run folders and is left there");
}

}  // namespace trireme::coordinator
