// What a call comes to after whoever waits for it was told that it is late.
#include "coordinator/daemon/late_call.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "runtime/base/steady_wait.h"

namespace trireme::coordinator {
namespace {

using std::chrono::milliseconds;

// A call by itself, late after a moment or after `deadline`, and what its asker was told.
class Asker {
 public:
  explicit Asker(milliseconds deadline = milliseconds(50))
      : thread_(TaskThreadOptions{.name = "asker", .between = {}}),
        late_(std::make_shared<WhileThere<TaskThread>>(thread_)),
        calls_(DiskCallsOptions{.name = "late", .threads = 1, .deadline = deadline}) {}
  ~Asker() {
    calls_.Stop();
    late_->Close();
  }

  template <typename Work>
  void Ask(Work work) {
    BeginLate(
        calls_, {"/tmp/x"}, late_, std::move(work),
        [this](const absl::StatusOr<int>& outcome) {
          const absl::MutexLock lock(&mutex_);
          taken_.push_back(outcome);
        },
        [this](const absl::Status& why) {
          const absl::MutexLock lock(&mutex_);
          held_up_.push_back(why);
        });
  }
  // In order; so many at least, where they come within a minute.
  std::vector<absl::Status> HeldUp(size_t count) { return Await(held_up_, count); }
  std::vector<absl::StatusOr<int>> Taken(size_t count) { return Await(taken_, count); }

 private:
  template <typename List>
  List Await(const List& list, size_t count) {
    for (int i = 0; i < 6000; ++i) {
      {
        const absl::MutexLock lock(&mutex_);
        if (list.size() >= count) return list;
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
    return {};
  }

  absl::Mutex mutex_;
  std::vector<absl::Status> held_up_;
  std::vector<absl::StatusOr<int>> taken_;
  TaskThread thread_;
  const std::shared_ptr<WhileThere<TaskThread>> late_;
  DiskCalls calls_;
};

// One that was told that its call is late while `work` is in it, until `go_on`. On a busy machine a
// call may be late before it has begun, and then it never does: that one is let go, and another
// asks.
template <typename Work>
std::unique_ptr<Asker> AskTooLong(const std::shared_ptr<base::SteadyEvent>& go_on, Work work) {
  for (int i = 0; i < 100; ++i) {
    const auto begun = std::make_shared<std::atomic<bool>>(false);
    auto asker = std::make_unique<Asker>();
    asker->Ask([begun, go_on, work]() -> absl::StatusOr<int> {
      *begun = true;
      go_on->WaitFor(std::chrono::seconds(60));
      return work();
    });
    if (asker->HeldUp(1).size() == 1 && *begun) return asker;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("late call: one that throws after it was told to be late is told of that as well") {
  const auto go_on = std::make_shared<base::SteadyEvent>();
  const auto late = AskTooLong(go_on, []() -> absl::StatusOr<int> { throw std::bad_alloc(); });
  REQUIRE(late != nullptr);
  Asker& asker = *late;
  go_on->Notify();
  const std::vector<absl::Status> told = asker.HeldUp(2);
  REQUIRE(told.size() == 2);
  CHECK(absl::IsDeadlineExceeded(told[0]));
  CHECK(absl::IsInternal(told[1]));
  CHECK(told[1].message() == std::bad_alloc().what());
  // Its thread is there for the next one.
  std::vector<absl::StatusOr<int>> taken;
  for (int i = 0; i < 600 && taken.empty(); ++i) {
    asker.Ask([]() -> absl::StatusOr<int> { return 7; });
    absl::SleepFor(absl::Milliseconds(100));
    taken = asker.Taken(0);
  }
  REQUIRE_FALSE(taken.empty());
  CHECK(*taken[0] == 7);
}

TEST_CASE("late call: what it comes to is taken, however late, and only that") {
  const auto go_on = std::make_shared<base::SteadyEvent>();
  const auto late = AskTooLong(
      go_on, []() -> absl::StatusOr<int> { return absl::NotFoundError("no such text"); });
  REQUIRE(late != nullptr);
  Asker& asker = *late;
  go_on->Notify();
  const auto taken = asker.Taken(1);
  REQUIRE(taken.size() == 1);
  CHECK(absl::IsNotFound(taken[0].status()));
  CHECK(asker.HeldUp(1).size() == 1);
}

TEST_CASE("late call: one that throws in time is told of once") {
  Asker asker(std::chrono::minutes(1));
  asker.Ask([]() -> absl::StatusOr<int> { throw std::bad_alloc(); });
  REQUIRE(asker.HeldUp(1).size() == 1);
  asker.Ask([]() -> absl::StatusOr<int> { return 7; });
  REQUIRE(asker.Taken(1).size() == 1);
  CHECK(asker.HeldUp(1).size() == 1);
  CHECK(absl::IsInternal(asker.HeldUp(1)[0]));
}

}  // namespace trireme::coordinator
