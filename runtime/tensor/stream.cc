// The host device's two streams. ThreadStream keeps its tasks in a ring fixed at creation: a task
// stays in its place while it runs and the place is free again once `finished_` has passed it, so
// nothing is allocated or copied twice.
#include "runtime/tensor/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/check.h"
#include "runtime/tensor/memory_gate.h"

namespace trireme::tensor {
namespace {

// Between two calls of `while_waiting`.
constexpr std::chrono::microseconds kLook{100};
constexpr uint64_t kNobody = std::numeric_limits<uint64_t>::max();
using TimePoint = std::chrono::steady_clock::time_point;

// Any thread may issue; the work runs on the issuing thread.
class InlineStream final : public Stream {
 public:
  explicit InlineStream(MemoryGate* gate) : Stream(gate) {}
  Event Record() override { return Event{this, Finished()}; }
  uint64_t Finished() const override { return finished_.load(std::memory_order_acquire); }
  void Await(uint64_t) override {}
  bool AwaitFor(uint64_t, std::chrono::milliseconds) override { return true; }
  bool inline_execution() const override { return true; }

 private:
  void Enqueue(Task task, MemoryGate* gate) override {
    {
      const OpenGate open(gate);
      task();
    }
    finished_.fetch_add(1, std::memory_order_release);
  }

  std::atomic<uint64_t> finished_{0};
};

// Any thread but the stream's own may issue (a task that issues to its own full stream would wait
// for itself). The destructor runs what was issued, then joins.
class ThreadStream final : public Stream {
 public:
  explicit ThreadStream(ThreadStreamOptions options)
      : Stream(options.gate),
        while_waiting_(std::move(options.while_waiting)),
        ring_(options.queue_capacity) {
    TRIREME_CHECK(options.queue_capacity > 0);
    thread_ = std::thread([this] { Run(); });
  }

  ~ThreadStream() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    work_.notify_one();
    thread_.join();
  }

  Event Record() override { return Event{this, issued_.load(std::memory_order_acquire)}; }
  uint64_t Finished() const override { return finished_.load(std::memory_order_acquire); }

  void Await(uint64_t sequence) override {
    std::unique_lock<std::mutex> lock(mutex_);
    WaitFor(
        lock, [&] { return sequence; }, TimePoint::max());
  }

  bool AwaitFor(uint64_t sequence, std::chrono::milliseconds limit) override {
    const TimePoint end = std::chrono::steady_clock::now() + limit;
    std::unique_lock<std::mutex> lock(mutex_);
    return WaitFor(
        lock, [&] { return sequence; }, end);
  }

  bool inline_execution() const override { return false; }

 private:
  struct Place {
    Task task;
    MemoryGate* gate = nullptr;
  };

  void Enqueue(Task task, MemoryGate* gate) override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      WaitFor(
          lock, [this] { return issued_.load() + 1 - std::min(issued_.load() + 1, ring_.size()); },
          TimePoint::max());
      ring_[issued_.load() % ring_.size()] = {task, gate};
      issued_.fetch_add(1, std::memory_order_release);
    }
    work_.notify_one();
  }

  // Until as many tasks have run as `wanted` says; false at `end`. Whoever waits is woken by the
  // task that it waits for, not by those before it.
  template <typename Wanted>
  bool WaitFor(std::unique_lock<std::mutex>& lock, const Wanted& wanted, TimePoint end) {
    while (finished_.load() < wanted()) {
      if (end != TimePoint::max() && std::chrono::steady_clock::now() >= end) return false;
      if (while_waiting_) {
        lock.unlock();
        while_waiting_();
        lock.lock();
        if (finished_.load() >= wanted()) break;
      }
      next_wanted_ = std::min(next_wanted_, wanted());
      if (while_waiting_) {
        done_.wait_for(lock, kLook);
      } else if (end == TimePoint::max()) {
        done_.wait(lock);
      } else {
        done_.wait_until(lock, end);
      }
    }
    return true;
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return stopping_ || issued_.load() > finished_.load(); });
      if (issued_.load() == finished_.load()) return;
      Place& place = ring_[finished_.load() % ring_.size()];
      lock.unlock();
      {
        const OpenGate open(place.gate);
        place.task();
      }
      lock.lock();
      finished_.fetch_add(1, std::memory_order_release);
      if (finished_.load() < next_wanted_) continue;
      next_wanted_ = kNobody;
      done_.notify_all();
    }
  }

  const std::function<void()> while_waiting_;
  std::mutex mutex_;
  std::condition_variable work_;  // a task was issued, or the stream stops
  std::condition_variable done_;  // as many tasks have run as somebody waits for
  std::vector<Place> ring_;       // task k stands at k % size; written under mutex_, run without it
  std::atomic<uint64_t> issued_{0};                         // written under mutex_
  std::atomic<uint64_t> finished_{0};                       // written under mutex_
  uint64_t next_wanted_ ABSL_GUARDED_BY(mutex_) = kNobody;  // the least that is waited for
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

void Stream::WaitFor(const Event& event) {
  if (event.Ready()) return;
  IssueAside(Task([event] { event.stream->Await(event.sequence); }));
}

std::unique_ptr<Stream> MakeInlineStream(MemoryGate* gate) {
  return std::make_unique<InlineStream>(gate);
}

std::unique_ptr<Stream> MakeThreadStream(ThreadStreamOptions options) {
  return std::make_unique<ThreadStream>(std::move(options));
}

}  // namespace trireme::tensor
