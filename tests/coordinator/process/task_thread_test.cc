// A thread with a queue: order, bound, clock, and an end that loses nothing.
#include "coordinator/process/task_thread.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/time_of_day.h"

namespace trireme::coordinator {
namespace {

// At work on a task until `go`; what is posted meanwhile waits.
void Hold(TaskThread& thread, absl::Notification& go) {
  absl::Notification begun;
  const absl::Status posted = thread.Post([&] {
    begun.Notify();
    go.WaitForNotification();
  });
  REQUIRE(posted.ok());
  begun.WaitForNotification();
}

}  // namespace

TEST_CASE("tasks run in order on one thread and all before the end") {
  std::vector<int> order;
  {
    TaskThread thread({.name = "test", .most_tasks = 1000, .between = {}});
    for (int i = 0; i < 500; ++i) REQUIRE(thread.Post([&order, i] { order.push_back(i); }).ok());
  }
  REQUIRE(order.size() == 500);
  for (int i = 0; i < 500; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}

TEST_CASE("a full queue refuses but takes answers") {
  absl::Notification go;
  std::atomic<int> ran{0};
  {
    TaskThread thread({.name = "test", .most_tasks = 3, .between = {}});
    Hold(thread, go);
    for (int i = 0; i < 3; ++i) REQUIRE(thread.Post([&] { ++ran; }).ok());
    CHECK(absl::IsResourceExhausted(thread.Post([&] { ++ran; })));
    thread.PostAnswer([&] { ++ran; });
    go.Notify();
  }
  CHECK(ran == 4);
}

TEST_CASE("owners take turns") {
  std::vector<std::string> order;
  absl::Notification go;
  {
    TaskThread thread({.name = "test", .most_tasks = 6, .between = {}});
    const auto post = [&](const std::string& owner) {
      return thread.Post([&order, owner] { order.push_back(owner); }, owner);
    };
    Hold(thread, go);
    for (int i = 0; i < 4; ++i) REQUIRE(post("ann").ok());
    REQUIRE(post("bob").ok());
    REQUIRE(post("cid").ok());
    CHECK(absl::IsResourceExhausted(post("dan")));
    CHECK(thread.waiting() == 6);
    go.Notify();
  }
  CHECK(order == std::vector<std::string>{"ann", "bob", "cid", "ann", "ann", "ann"});
}

TEST_CASE("one owner leaves the others room in the queue") {
  std::atomic<int> ran{0};
  absl::Notification go;
  {
    TaskThread thread({.name = "test", .most_tasks = 6, .most_of_owner = 3, .between = {}});
    const auto post = [&](const std::string& owner) { return thread.Post([&] { ++ran; }, owner); };
    Hold(thread, go);
    for (int i = 0; i < 3; ++i) REQUIRE(post("ann").ok());
    const absl::Status refused = post("ann");
    CHECK(absl::IsResourceExhausted(refused));
    CHECK(refused.message().find("3 requests of yours wait for the test") != std::string::npos);
    CHECK(post("bob").ok());
    CHECK(post("").ok());
    go.Notify();
  }
  CHECK(ran == 5);
}

TEST_CASE("between runs after tasks and when its time has come") {
  std::atomic<int> calls{0};
  absl::Notification third;
  TaskThread thread({.name = "test", .between = [&](int64_t now_unix_ns) {
                       if (++calls == 3) third.Notify();
                       return now_unix_ns + 1'000'000;
                     }});
  CHECK(third.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

TEST_CASE("between runs in its time also when the time of day is set back") {
  const test::TimeOfDayAhead ahead(3600);
  std::atomic<int> calls{0};
  TaskThread thread({.name = "test", .between = [&](int64_t now_unix_ns) {
                       ++calls;
                       return now_unix_ns + 1'000'000;
                     }});
  for (int i = 0; i < 2000 && calls < 3; ++i) absl::SleepFor(absl::Milliseconds(10));
  CHECK(calls >= 3);
  absl::Notification ran;
  REQUIRE(thread.Post([&] { ran.Notify(); }).ok());
  ran.WaitForNotification();
}

}  // namespace trireme::coordinator
