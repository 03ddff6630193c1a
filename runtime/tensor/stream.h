// Streams and events: work is issued in order on a stream; an event marks a point of it. The host
// device has two kinds of stream: InlineStream runs work at once on the caller's thread,
// ThreadStream runs it on a thread of its own (bounded queue, nothing allocated per task), which
// proves stream discipline long before an accelerator is there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace trireme::tensor {

class MemoryGate;

// A callable stored in place, so that issuing work allocates nothing. Captures are at most
// kCapacity bytes.
class Task {
 public:
  static constexpr size_t kCapacity = 96;

  Task() = default;
  template <typename Function>
  explicit Task(Function function) {
    static_assert(sizeof(Function) <= kCapacity, "capture less, or by pointer");
    static_assert(std::is_trivially_copyable_v<Function>, "a task is copied as bytes");
    new (storage_) Function(function);
    call_ = [](void* storage) { (*std::launder(reinterpret_cast<Function*>(storage)))(); };
  }
  void operator()() { call_(storage_); }

 private:
  alignas(16) std::byte storage_[kCapacity];
  void (*call_)(void*) = nullptr;
};

// A point of a stream: `sequence` tasks of it are done. Trivially copyable.
class Stream;
struct Event {
  Stream* stream = nullptr;
  uint64_t sequence = 0;
  // True once everything issued before the event has run. Never blocks; a default event is always
  // ready.
  bool Ready() const;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Runs `task` after everything issued before. Blocks only while a ThreadStream's queue is full.
  void Issue(Task task) { Enqueue(task, gate_); }
  // The same of one that touches no memory of the device.
  void IssueAside(Task task) { Enqueue(task, nullptr); }
  // The point after everything issued so far.
  virtual Event Record() = 0;
  // Tasks finished so far; Event::Ready compares with it.
  virtual uint64_t Finished() const = 0;
  // Blocks the caller until so many tasks have run.
  virtual void Await(uint64_t sequence) = 0;
  // The same for at most `limit`; false: they have not.
  virtual bool AwaitFor(uint64_t sequence, std::chrono::milliseconds limit) = 0;
  // True if Issue runs the task before it returns.
  virtual bool inline_execution() const = 0;

  // Blocks the caller until everything issued so far has run.
  void Synchronize() { Await(Record().sequence); }
  // Work issued from now on runs after `event`, which is another stream's.
  void WaitFor(const Event& event);
  // Of the device whose memory the stream's tasks work on; null: it is never shut.
  MemoryGate* gate() const { return gate_; }

 protected:
  explicit Stream(MemoryGate* gate) : gate_(gate) {}
  // `gate` (may be null) is open while the task runs.
  virtual void Enqueue(Task task, MemoryGate* gate) = 0;

 private:
  MemoryGate* const gate_;
};

inline bool Event::Ready() const { return stream == nullptr || stream->Finished() >= sequence; }

std::unique_ptr<Stream> MakeInlineStream(MemoryGate* gate = nullptr);

struct ThreadStreamOptions {
  size_t queue_capacity = 1024;
  // What a thread does that waits for the stream, in Issue on a full queue or in Await: it is
  // called at once and then ten thousand times a second, without a lock of the stream held, so that
  // whoever waits still drives what others wait for. It must not block, nor use the stream; it may
  // be called by several threads at a time.
  std::function<void()> while_waiting = {};
  MemoryGate* gate = nullptr;
};
std::unique_ptr<Stream> MakeThreadStream(ThreadStreamOptions options = {});

}  // namespace trireme::tensor
