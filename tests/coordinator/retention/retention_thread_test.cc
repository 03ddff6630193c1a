// A thread that hangs at a disk holds up nobody's end.
#include "coordinator/retention/retention_thread.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>

#include "absl/synchronization/notification.h"

namespace trireme::coordinator {
namespace {

struct Bench {
  absl::Notification disk, began, ended;
  std::atomic<int> turns{0};
  std::atomic<bool> stopped{false};
};

TEST_CASE("retention thread: one that hangs is left, with all that it uses") {
  const auto bench = std::make_shared<Bench>();
  {
    RetentionThread thread({.turn =
                                [bench](int64_t now) {
                                  bench->began.Notify();
                                  bench->disk.WaitForNotification();
                                  bench->ended.Notify();
                                  return now;
                                },
                            .stop = [bench] { bench->stopped = true; }},
                           std::chrono::milliseconds(20));
    bench->began.WaitForNotification();
  }
  CHECK(bench->stopped);
  CHECK_FALSE(bench->ended.HasBeenNotified());
  // The disk answers after all.
  bench->disk.Notify();
  CHECK(bench->ended.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

TEST_CASE("retention thread: it turns when it has asked to, and one that does not hang has ended") {
  Bench bench;
  {
    RetentionThread thread({.turn =
                                [&bench](int64_t now) {
                                  if (++bench.turns == 3) bench.began.Notify();
                                  return bench.turns < 3 ? now + 1000000
                                                         : now + int64_t{3600} * 1000000000;
                                },
                            .stop = [&bench] { bench.stopped = true; }},
                           std::chrono::seconds(60));
    CHECK(bench.began.WaitForNotificationWithTimeout(absl::Seconds(30)));
  }
  CHECK(bench.turns == 3);
  CHECK(bench.stopped);
}

}  // namespace
}  // namespace trireme::coordinator
