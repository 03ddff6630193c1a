// A store whose disk answers only while it is let: whoever reads waits. Commits go on, so that it
// is seen who waits besides the reconciler.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/job_store/forwarding_store.h"

namespace trireme::coordinator {

class HeldStore : public ForwardingStore {
 public:
  explicit HeldStore(std::unique_ptr<JobStore> store) : ForwardingStore(std::move(store)) {}

  void Hold() {
    const absl::MutexLock lock(&mutex_);
    const auto known = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !keeps_older_ || reconciler_;
    };
    mutex_.Await(absl::Condition(&known));
    open_ = false;
  }
  void LetGo() {
    const absl::MutexLock lock(&mutex_);
    open_ = true;
  }
  // The reconciler does not come to read jobs that ended before it began: its disk fails. To be
  // called before it is there.
  void KeepOlder() { keeps_older_ = true; }
  int waiting() {
    const absl::MutexLock lock(&mutex_);
    return waiting_;
  }
  // Until so many calls wait.
  void AwaitWaiting(int count) {
    const absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waiting_ >= count; };
    mutex_.Await(absl::Condition(&there));
  }

  absl::StatusOr<std::vector<v1::Job>> JobsBefore(uint64_t id, size_t limit) override {
    if (keeps_older_ && OfReconciler()) return absl::UnavailableError("the disk");
    Pass();
    return ForwardingStore::JobsBefore(id, limit);
  }
  absl::StatusOr<std::optional<v1::Job>> FindJob(uint64_t id) override {
    Pass();
    return ForwardingStore::FindJob(id);
  }
  absl::StatusOr<std::vector<v1::Event>> Events(const EventQuery& query) override {
    Pass();
    return ForwardingStore::Events(query);
  }
  absl::StatusOr<uint64_t> FirstSequence() override {
    Pass();
    return ForwardingStore::FirstSequence();
  }

 private:
  // Whoever asks for older jobs first.
  bool OfReconciler() {
    const absl::MutexLock lock(&mutex_);
    if (!reconciler_) reconciler_ = std::this_thread::get_id();
    return *reconciler_ == std::this_thread::get_id();
  }
  void Pass() {
    const absl::MutexLock lock(&mutex_);
    ++waiting_;
    mutex_.Await(absl::Condition(&open_));
    --waiting_;
  }

  bool keeps_older_ = false;
  absl::Mutex mutex_;
  std::optional<std::thread::id> reconciler_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trireme::coordinator
