// Requests come on several threads at once: what is right must not depend on who is first, and
// ThreadSanitizer sees whatever is touched without its lock.
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/dashboard/sessions.h"
#include "coordinator/dashboard/stall_board.h"

namespace trireme::dashboard {
namespace {

constexpr int kThreads = 4;
constexpr int64_t kTime = 1'700'000'000'000'000'000;

// All begin when all are there; Catch2 itself is for one thread, so they count and do not check.
void Together(const std::function<void(int)>& work) {
  std::latch there(kThreads);
  std::vector<std::thread> threads;
  for (int self = 0; self < kThreads; ++self) {
    threads.emplace_back([&, self] {
      there.arrive_and_wait();
      work(self);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("of many who redeem one key at once one gets a session") {
  Sessions sessions;
  std::vector<std::string> keys;
  for (int i = 0; i < 200; ++i) {
    keys.push_back(sessions.MakeKey({"ada", coordinator::Role::kSubmit}, kTime));
  }
  std::atomic<int> opened = 0, right = 0;
  Together([&](int) {
    for (const std::string& key : keys) {
      const auto secret = sessions.Redeem(key, kTime);
      if (!secret) continue;
      ++opened;
      const auto caller = sessions.Find(*secret, kTime);
      if (caller && caller->user == "ada") ++right;
    }
  });
  CHECK(opened == 200);
  CHECK(right == 200);
}

TEST_CASE("sessions that are opened, looked up and ended at once do not meet") {
  Sessions sessions;
  const auto shared =
      sessions.Redeem(sessions.MakeKey({"all", coordinator::Role::kAdmin}, kTime), kTime);
  REQUIRE(shared.has_value());
  std::atomic<int> faults = 0;
  Together([&](int self) {
    const std::string user = "user " + std::to_string(self);
    for (int round = 0; round < 100; ++round) {
      const auto own =
          sessions.Redeem(sessions.MakeKey({user, coordinator::Role::kSubmit}, kTime), kTime);
      const auto found = own ? sessions.Find(*own, kTime + round) : std::nullopt;
      if (!found || found->user != user) ++faults;
      const auto common = sessions.Find(*shared, kTime + round);
      if (!common || common->user != "all") ++faults;
      if (!own) continue;
      sessions.End(*own);
      if (sessions.Find(*own, kTime + round)) ++faults;
    }
  });
  CHECK(faults == 0);
  // Whoever ends all of them meets those who are at work.
  Together([&](int self) {
    for (int round = 0; round < 50; ++round) {
      if (self == 0) sessions.EndAll();
      const auto own =
          sessions.Redeem(sessions.MakeKey({"ada", coordinator::Role::kSubmit}, kTime), kTime);
      if (own) (void)sessions.Find(*own, kTime);
    }
  });
  sessions.EndAll();
  CHECK_FALSE(sessions.Find(*shared, kTime));
}

TEST_CASE("many who look at the stall board while events come see each rank in the end") {
  auto opened = coordinator::JobStore::Open(":memory:");
  REQUIRE(opened.ok());
  const std::shared_ptr<coordinator::JobStore> held = *std::move(opened);
  coordinator::JobStore& store = *held;
  const auto shared = std::make_shared<coordinator::JobTable>();
  coordinator::JobTable& table = *shared;
  coordinator::StoreReads reads(shared, held, "/state/jobs.db");
  StallBoard board(reads);
  constexpr int kJobs = 3, kRanks = 40;
  const auto look = [&](int id) {
    v1::Job job;
    job.set_id(static_cast<uint64_t>(id));
    job.mutable_status()->set_attempt(1);
    job.mutable_status()->set_attempt_live(true);
    return board.Of({&job, 1}).front().size();
  };
  std::atomic<int> faults = 0;
  std::atomic<bool> over = false;
  // Thread 0 plays the reconciler, the one writer.
  Together([&](int self) {
    for (int rank = 0; self == 0 && rank < kRanks; ++rank) {
      coordinator::Change change;
      for (int id = 1; id <= kJobs; ++id) {
        v1::Event& event = change.events.emplace_back();
        event.set_job_id(static_cast<uint64_t>(id));
        event.set_attempt(1);
        event.mutable_stalled()->set_rank(static_cast<uint32_t>(rank));
        event.mutable_stalled()->set_text("rank " + std::to_string(rank));
      }
      if (!store.Commit(change).ok()) ++faults;
      table.Publish({}, change.events);
    }
    if (self == 0) over = true;
    size_t before[kJobs + 1] = {};
    bool known = false;  // one who comes while others are read of is told of none yet
    for (bool last = false; self != 0 && !(last && known);) {
      last = over;  // one look more, after the last event
      known = true;
      for (int id = 1; id <= kJobs; ++id) {
        const size_t now = look(id);
        if (now < before[id] || now > kRanks) ++faults;  // nobody goes on
        before[id] = now;
        if (last && now != 0 && now != kRanks) ++faults;
        known = known && now != 0;
      }
    }
  });
  CHECK(faults == 0);
  for (int id = 1; id <= kJobs; ++id) CHECK(look(id) == kRanks);
}

}  // namespace trireme::dashboard
