// Calls that may hang on a disk, on threads that may: some for each file system, so that one that
// does not answer slows only those who ask for it. docs/adr/0021.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace trireme::coordinator {

struct DiskCallsOptions {
  std::string name;                          // of the threads; at most 15 characters, shown by ps
  size_t threads = 4;                        // of each file system
  size_t most_threads = 256;                 // of all together
  size_t most_waiting = 10000;               // likewise
  size_t most_of_owner = 5000;               // of these, of one owner
  std::chrono::milliseconds deadline{5000};  // less than callers of the API wait
  // A thread that has been at one call for so long counts as hanging, whoever waits for it still.
  std::chrono::milliseconds hangs_after{5000};
  // Counts the threads of several that hang, theirs together; null: nobody asks.
  std::shared_ptr<std::atomic<size_t>> hanging_of_all = nullptr;
};

// Of a call that goes on for long, by steps: it waits in its queue for as long as others go on
// there, and its deadline counts from its start and from each step anew. Threads: any.
class DiskPulse {
 public:
  // A step begins. False: whoever asked has been answered without it, so the call should come to
  // its end.
  bool Beat();
  // Likewise, and from now on `path` is named should it hang; empty: whatever the call asks for.
  bool BeatAt(const std::string& path);

 private:
  friend class DiskCalls;
  using Clock = std::chrono::steady_clock;
  struct Step {
    Clock::time_point began;
    std::string path;
  };
  Step newest() const {
    const absl::MutexLock lock(&mutex_);
    return newest_;
  }

  mutable absl::Mutex mutex_;
  Step newest_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> answered_{false};
};

struct DiskPath {
  std::string path;                       // absolute; names the file system
  std::string owner = "";                 // who asks: owners take turns
  std::chrono::milliseconds deadline{0};  // 0: that of the options
  // What the call asks for besides. One that asks several file systems has threads of just these
  // together, so that none of them holds up who asks for the others alone. It should tell of its
  // steps by their paths: else nobody knows which of them it hangs at.
  std::vector<std::string> also = {};
  std::shared_ptr<DiskPulse> pulse = nullptr;
};

// Threads: any.
class DiskCalls {
 public:
  explicit DiskCalls(DiskCallsOptions options);
  // As Stop. A thread that hangs is left to itself, with what its call owns.
  ~DiskCalls();
  DiskCalls(const DiskCalls&) = delete;
  DiskCalls& operator=(const DiskCalls&) = delete;

  // Never blocks. `call` runs on a thread of the file system of `where` and returns a Status or a
  // StatusOr, which `answer` gets, once, from any thread; `answer` does not block. When the
  // deadline passes it gets DeadlineExceeded, which names path and mount; `call` may come to its
  // end later, or never, so it owns all that it touches.
  // Not OK: neither is called. Unavailable: as many calls as a file system of `where` has threads
  // hang there, whatever else they ask for, or the end has come; ResourceExhausted: too many wait.
  template <typename Call, typename Answer>
  absl::Status Begin(const DiskPath& where, Call call, Answer answer) {
    using Result = std::invoke_result_t<Call>;
    auto result = std::make_shared<std::optional<Result>>();
    return Post(
        where,
        [result, call = std::move(call)]() mutable {
          try {
            result->emplace(call());
          } catch (const std::exception& thrown) {  // as for want of memory
            result->emplace(absl::InternalError(thrown.what()));
          }
        },
        [result, answer = std::move(answer)](const absl::Status& status) mutable {
          answer(status.ok() ? **std::move(result) : Result(status));
        });
  }
  // The result of `call`, or one of the errors of Begin; blocks until the deadline at most.
  template <typename Call>
  std::invoke_result_t<Call> Wait(const DiskPath& where, Call call) {
    using Result = std::invoke_result_t<Call>;
    struct Got {
      std::optional<Result> result;
      absl::Notification there;
    };
    const auto got = std::make_shared<Got>();
    absl::Status begun = Begin(where, std::move(call), [got](Result result) {
      got->result.emplace(std::move(result));
      got->there.Notify();
    });
    if (!begun.ok()) return begun;
    got->there.WaitForNotification();
    return *std::move(got->result);
  }

  // Answers whatever is not answered yet with Unavailable, at once what waits or hangs, after a
  // moment what runs; no answer is under way when it returns, and none comes later.
  void Stop();
  // Calls that wait for a thread, and threads that hang.
  size_t waiting() const;
  size_t hanging() const;
  // File systems, and sets of them, of which something waits or runs.
  size_t lanes() const;

 private:
  class Pool;
  absl::Status Post(const DiskPath& where, std::function<void()> work,
                    std::function<void(const absl::Status&)> answer);

  const std::shared_ptr<Pool> pool_;  // the threads have it too
  std::thread clock_;                 // of the deadlines
};

}  // namespace trireme::coordinator
