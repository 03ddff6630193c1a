// Waits while the time of day is set back by an hour: those by the time of day would take it.
#include "runtime/base/steady_wait.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>

#include "tests/time_of_day.h"

namespace trireme::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Whether `wait` ends long before an hour has passed.
template <typename Wait>
bool EndsInTime(Wait wait) {
  auto outcome = std::make_shared<std::promise<void>>();
  auto ended = outcome->get_future();
  std::thread([wait, outcome] {
    wait();
    outcome->set_value();
  }).detach();
  return ended.wait_for(seconds(20)) == std::future_status::ready;
}

struct Waited {
  absl::Mutex mutex;
  SteadyCondVar changed;
  SteadyEvent event;
  bool late = false;
};

}  // namespace

TEST_CASE("a wait ends in its time also when the time of day is set back") {
  const test::TimeOfDayAhead ahead(3600);
  const auto all = std::make_shared<Waited>();
  CHECK(EndsInTime([all] {
    const absl::MutexLock lock(&all->mutex);
    while (!all->late) all->late = all->changed.WaitFor(&all->mutex, milliseconds(20));
  }));
  CHECK(EndsInTime([all] { (void)all->event.WaitFor(milliseconds(20)); }));
  // As the library's wait on what another thread promises, which we use too.
  CHECK(EndsInTime([] { std::promise<void>().get_future().wait_for(milliseconds(20)); }));
}

TEST_CASE("who waits is woken by a signal, and by an event of before too") {
  Waited all;
  bool there = false;
  std::thread other([&] {
    const absl::MutexLock lock(&all.mutex);
    there = true;
    all.changed.Signal();
    all.event.Notify();
  });
  {
    const absl::MutexLock lock(&all.mutex);
    while (!there) all.changed.Wait(&all.mutex);
  }
  CHECK(all.event.WaitFor(seconds(60)));
  CHECK(all.event.HasBeenNotified());
  CHECK(all.event.WaitFor(seconds(-1)));
  other.join();
  CHECK_FALSE(SteadyEvent().WaitFor(milliseconds(1)));
}

TEST_CASE("a deadline for gRPC is as far away by the time of day") {
  const auto hour = std::chrono::steady_clock::now() + std::chrono::hours(1);
  const auto left = TimeOfDayAt(hour) - std::chrono::system_clock::now();
  CHECK(left > std::chrono::minutes(59));
  CHECK(left <= std::chrono::minutes(61));
}

}  // namespace trireme::base
