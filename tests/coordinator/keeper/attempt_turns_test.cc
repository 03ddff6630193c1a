// Turns on threads that a disk may hold: which are taken, which are refused, and how long a round
// is waited for.
#include "coordinator/keeper/attempt_turns.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/time_of_day.h"

namespace trireme::keeper {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A turn that a disk holds until Answer.
struct HeldByDisk {
  ~HeldByDisk() { Answer(); }
  void Answer() {
    if (!answers->HasBeenNotified()) answers->Notify();
  }
  void Begin(AttemptTurns& turns) const {
    turns.Begin(
        "/tmp/x", "held", [answers = answers] { answers->WaitForNotification(); }, [] {});
  }
  const std::shared_ptr<absl::Notification> answers = std::make_shared<absl::Notification>();
};

struct Taken {
  std::promise<bool> taken;
  std::atomic<bool> ran{false};
};

// Whether it was run, once it is over.
std::future<bool> Begin(AttemptTurns& turns) {
  auto turn = std::make_shared<Taken>();
  turns.Begin(
      "/tmp/x", "other", [turn] { turn->ran = true; },
      [turn] { turn->taken.set_value(turn->ran); });
  return turn->taken.get_future();
}

bool AwaitOver(const std::future<bool>& turn) {
  return turn.wait_for(seconds(60)) == std::future_status::ready;
}

TEST_CASE("turns: one that waits behind others is taken, however late") {
  coordinator::DiskCallsOptions options;
  options.threads = 1;
  options.deadline = milliseconds(20);
  HeldByDisk held;
  AttemptTurns turns(milliseconds(20), options);
  held.Begin(turns);
  auto behind = Begin(turns);
  std::this_thread::sleep_for(milliseconds(200));
  CHECK(behind.wait_for(seconds(0)) != std::future_status::ready);
  held.Answer();
  REQUIRE(AwaitOver(behind));
  CHECK(behind.get());
}

TEST_CASE("turns: where all threads hang they are refused, also those that wait") {
  coordinator::DiskCallsOptions options;
  options.threads = 1;
  options.hangs_after = milliseconds(50);
  HeldByDisk held;
  AttemptTurns turns(milliseconds(20), options);
  held.Begin(turns);
  auto behind = Begin(turns);
  REQUIRE(AwaitOver(behind));
  CHECK_FALSE(behind.get());
  auto late = Begin(turns);
  REQUIRE(AwaitOver(late));
  CHECK_FALSE(late.get());
  held.Answer();
  // When it is back it serves again.
  for (bool taken = false; !taken;) {
    auto again = Begin(turns);
    REQUIRE(AwaitOver(again));
    taken = again.get();
  }
}

TEST_CASE("turns: some attempts that hang leave threads to those beside them on a file system") {
  std::vector<HeldByDisk> held(8);
  AttemptTurns turns(milliseconds(20));
  for (const HeldByDisk& one : held) one.Begin(turns);
  auto beside = Begin(turns);
  REQUIRE(AwaitOver(beside));
  CHECK(beside.get());
}

// The kernel waits for the hour that the day has lost, if it is asked to wait by the time of day.
TEST_CASE("turns: a round ends in its time also when the time of day is set back") {
  HeldByDisk held;
  AttemptTurns turns(milliseconds(20));
  const test::TimeOfDayAhead ahead(3600);
  turns.BeginRound();
  held.Begin(turns);
  const auto round = std::async(std::launch::async, [&] { turns.AwaitRound(); });
  CHECK(round.wait_for(seconds(20)) == std::future_status::ready);
  held.Answer();
}

}  // namespace
}  // namespace trireme::keeper
