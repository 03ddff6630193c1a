// Ranks that compute, wait for each other, stop and hang, as their nodes would report them: whoever
// holds the others up is named in time, and nobody is while anybody moves.
#include "coordinator/reconciler/stall_watch.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "tests/coordinator/reconciler/reported_ranks.h"

namespace trireme::coordinator {
namespace {

using Catch::Contains;

// Ranks in steps: each computes for a while, then waits for its neighbour or for all, by the
// number of the step. Two nodes report once a second.
class SimulatedRanks {
 public:
  SimulatedRanks(uint32_t seed, size_t ranks, int64_t longest_ms)
      : random_(seed), ranks_(ranks), longest_ms_(longest_ms) {
    for (Rank& rank : ranks_) Begin(rank);
  }

  struct Rank {
    uint64_t step = 0;
    int64_t computes_until = 0;
    int64_t moved = 0;
    int64_t waits_since = -1;
    uint32_t peer = 0;
    int64_t longest = 0;
    bool stopped = false;
    bool hung = false;
  };

  void Run(int64_t ms, StallWatch& watch) {
    for (const int64_t end = now_ + ms; now_ < end; now_ += 100) {
      for (size_t r = 0; r < ranks_.size(); ++r) Advance(r);
      for (size_t node = 0; node < 2; ++node) {
        if (now_ % 1000 == static_cast<int64_t>(300 * node)) Report(node, watch);
      }
    }
  }
  // A rank that waits goes on waiting, and hangs in its next step.
  void HangInNextStep(size_t r, StallWatch& watch) {
    const uint64_t step = ranks_[r].step;
    while (ranks_[r].step == step) Run(100, watch);
    ranks_[r].hung = true;
  }
  // Asked of the daemon at each report.
  void Report(size_t node, StallWatch& watch) {
    v1::AttemptReport report;
    report.set_phase(v1::ATTEMPT_RUNNING);
    for (size_t r = node; r < ranks_.size(); r += 2) *report.add_ranks() = Look(r);
    // It may be late by less than a second.
    const int64_t heard = kStart + (now_ + static_cast<int64_t>(random_() % 900)) * kMs;
    watch.Hear(node == 0 ? "n1" : "n2", report, heard);
    for (const v1::RankStalled& news : watch.News(false)) {
      watch.Told(news, heard);
      told_.push_back(news);
      told_at_ = now_;
    }
  }

  Rank& rank(size_t r) { return ranks_[r]; }
  int64_t now() const { return now_; }
  int64_t told_at() const { return told_at_; }
  std::vector<v1::RankStalled> TakeTold() { return std::exchange(told_, {}); }
  void set_longest_ms(int64_t ms) { longest_ms_ = ms; }

 private:
  void Begin(Rank& rank) {
    ++rank.step;
    rank.moved = now_;
    rank.waits_since = -1;
    rank.computes_until =
        now_ + static_cast<int64_t>(random_() % static_cast<uint32_t>(longest_ms_));
  }
  // Has done its part of the step.
  bool Arrived(size_t r, uint64_t step) const {
    return ranks_[r].step > step || (ranks_[r].step == step && ranks_[r].waits_since >= 0);
  }
  void Advance(size_t r) {
    Rank& rank = ranks_[r];
    if (rank.stopped || rank.hung || now_ < rank.computes_until) return;
    if (rank.waits_since < 0) rank.waits_since = now_;
    if (rank.step % 3 == 0) {
      rank.peer = static_cast<uint32_t>((r + 1) % ranks_.size());
      if (Arrived(rank.peer, rank.step)) Begin(rank);
      return;
    }
    for (size_t other = 0; other < ranks_.size(); ++other) {
      if (Arrived(other, rank.step)) continue;
      rank.peer = static_cast<uint32_t>(other);
      return;
    }
    Begin(rank);
  }
  v1::RankReport Look(size_t r) const {
    const Rank& rank = ranks_[r];
    v1::RankReport report;
    report.set_rank(static_cast<uint32_t>(r));
    report.set_life(rank.stopped ? v1::RANK_STOPPED : v1::RANK_ALIVE);
    report.set_step(rank.step);
    report.set_position("F of micro-batch 1, virtual stage 0");
    report.set_still_ms(static_cast<uint64_t>(now_ - rank.moved));
    report.set_peer(-1);
    if (rank.step > 1) report.mutable_timing()->set_step(rank.step - 1);
    // Short waits are not noted.
    if (rank.waits_since >= 0 && now_ - rank.waits_since >= 1000) {
      report.set_waiting_ms(static_cast<uint64_t>(now_ - rank.waits_since));
      report.set_peer(static_cast<int32_t>(rank.peer));
    }
    return report;
  }

  std::mt19937 random_;
  std::vector<Rank> ranks_;
  int64_t longest_ms_;
  int64_t now_ = 0;  // ms
  std::vector<v1::RankStalled> told_;
  int64_t told_at_ = 0;
};

TEST_CASE("nobody is told of while ranks move however unevenly") {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    SimulatedRanks ranks(seed, 2 + seed % 7, 9000);
    StallWatch watch;
    ranks.Run(400'000, watch);
    CHECK(ranks.TakeTold().empty());
    // What an attempt has gone on from is ordinary for it.
    ranks.set_longest_ms(20'000);
    ranks.Run(400'000, watch);
    CHECK(ranks.TakeTold().empty());
    CHECK(ranks.rank(0).step > 10);
  }
}

TEST_CASE("a rank that hangs is told within ten seconds and two reports and so is its end") {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const size_t count = 2 + seed % 7;
    SimulatedRanks ranks(seed, count, 1500);
    StallWatch watch;
    ranks.Run(30'000 + 100 * (seed % 37), watch);
    CHECK(ranks.TakeTold().empty());
    const size_t victim = (seed * 5) % count;
    ranks.HangInNextStep(victim, watch);
    const int64_t hung_at = ranks.now();
    ranks.Run(60'000, watch);
    const auto told = ranks.TakeTold();
    REQUIRE(told.size() == 1);
    CHECK(told[0].rank() == victim);
    CHECK(told[0].node() == (victim % 2 == 0 ? "n1" : "n2"));
    CHECK_FALSE(told[0].over());
    // Others come to wait for it within a step of theirs.
    CHECK(ranks.told_at() - hung_at <= 10'000 + 2 * 1500 + 2 * 1000);
    CHECK_THAT(told[0].text(), Contains("rank " + std::to_string(victim) + " on node ") &&
                                   Contains("has not moved for 1") &&
                                   Contains(" at step " + std::to_string(ranks.rank(victim).step) +
                                            ", F of micro-batch 1"));
    CHECK_THAT(told[0].text(), Contains("for it"));
    ranks.rank(victim).hung = false;
    ranks.Run(20'000, watch);
    const auto later = ranks.TakeTold();
    REQUIRE(later.size() == 1);
    CHECK((later[0].rank() == victim && later[0].over()));
    // As long a stillness as that is none any more.
    ranks.rank(victim).hung = true;
    ranks.Run(120'000, watch);
    CHECK(ranks.TakeTold().empty());
  }
}

TEST_CASE("a stop is told at once and what it keeps waiting is no stall") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const size_t count = 2 + seed % 5;
    SimulatedRanks ranks(seed, count, 1500);
    StallWatch watch;
    ranks.Run(20'000, watch);
    const size_t victim = seed % count;
    for (int round = 0; round < 3; ++round) {
      ranks.rank(victim).stopped = true;
      ranks.Run(1000, watch);
      auto told = ranks.TakeTold();
      REQUIRE(told.size() == 1);
      CHECK(told[0].rank() == victim);
      CHECK_THAT(told[0].text(), Contains("is stopped (SIGSTOP"));
      ranks.Run(30'000 + seed * 100, watch);
      CHECK(ranks.TakeTold().empty());
      ranks.rank(victim).stopped = false;
      ranks.Run(8000, watch);
      told = ranks.TakeTold();
      REQUIRE(told.size() == 1);
      CHECK((told[0].rank() == victim && told[0].over()));
    }
    // Nor does it count as something that the attempt goes on from.
    ranks.HangInNextStep(victim, watch);
    ranks.Run(25'000, watch);
    REQUIRE(ranks.TakeTold().size() == 1);
  }
}

TEST_CASE("who is told of before a restart is not told of again") {
  SimulatedRanks ranks(3, 4, 1500);
  StallWatch before;
  ranks.Run(20'000, before);
  ranks.rank(2).hung = true;
  ranks.Run(20'000, before);
  const auto told = ranks.TakeTold();
  REQUIRE(told.size() == 1);
  StallWatch after;
  after.Told(told[0], kStart + ranks.told_at() * kMs);
  ranks.Run(60'000, after);
  CHECK(ranks.TakeTold().empty());
  ranks.rank(2).hung = false;
  ranks.Run(5000, after);
  REQUIRE(ranks.TakeTold().size() == 1);
}

TEST_CASE("the end of a chain of waits is named with all who wait") {
  Reported reported;
  StallWatch watch;
  for (uint32_t r = 0; r < 4; ++r) reported.rank(r);
  CHECK(reported.Tell(watch, 0).empty());
  reported.Wait(0, 1, 12'000);
  reported.Wait(1, 3, 12'000);
  reported.Wait(2, -1, 12'000);  // a sum, of which it is not known who is late
  reported.rank(3).set_still_ms(12'500);
  const auto news = reported.Tell(watch, 12'500);
  REQUIRE(news.size() == 1);
  CHECK(news[0].text() ==
        "rank 3 on node n1 has not moved for 12 s at step 7, NORM; ranks 0, 1, 2 wait for it");
  // A circle names nobody, and its deadline ends it.
  Reported circle;
  StallWatch other;
  for (uint32_t r = 0; r < 3; ++r) circle.Wait(r, static_cast<int32_t>((r + 1) % 3), 50'000);
  CHECK(circle.Tell(other, 50'000).empty());
}

TEST_CASE("a rank has more time before its first whole step") {
  Reported reported;
  StallWatch watch;
  reported.Wait(0, 1, 40'000);
  reported.rank(1).clear_timing();
  reported.Tell(watch, 0);
  reported.rank(1).set_still_ms(40'000);
  CHECK(reported.Tell(watch, 40'000).empty());
  reported.rank(1).set_still_ms(61'000);
  reported.Wait(0, 1, 61'000);
  CHECK(reported.Tell(watch, 61'000).size() == 1);
}

TEST_CASE("numbers that cannot be do no harm") {
  Reported reported;
  StallWatch watch;
  reported.Wait(0, 1, ~uint64_t{0});
  reported.Wait(2, 77, ~uint64_t{0});
  reported.Wait(3, -5, 1);
  reported.rank(1).set_still_ms(~uint64_t{0});
  CHECK(reported.Tell(watch, 0).empty());
  REQUIRE(reported.Tell(watch, 20'000).size() == 1);
  CHECK(reported.Tell(watch, 21'000).empty());
}

TEST_CASE("of several deaths the first is told alone") {
  Reported reported;
  StallWatch watch;
  for (uint32_t r = 0; r < 4; ++r) reported.rank(r);
  CHECK(reported.Tell(watch, 0).empty());
  reported.rank(2).set_life(v1::RANK_DEAD);
  const auto news = reported.Tell(watch, 1000);
  REQUIRE(news.size() == 1);
  CHECK(news[0].text() == "rank 2 on node n1 is dead at step 7, NORM");
  for (const uint32_t r : {0, 1, 3}) reported.rank(r).set_life(v1::RANK_DEAD);
  CHECK(reported.Tell(watch, 2000).empty());
}

TEST_CASE("deaths of which the cause is another's or nobody's are not told") {
  for (const bool meant : {false, true}) {
    CAPTURE(meant);
    Reported reported;
    StallWatch watch;
    for (uint32_t r = 0; r < 3; ++r) reported.rank(r);
    reported.Tell(watch, 0);
    if (meant) {
      // The job is to stop, and is killed in the end.
      reported.rank(1).set_life(v1::RANK_DEAD);
    } else {
      // One ran into its deadline and said so; the failure will name whom it waited for.
      reported.rank(1).set_life(v1::RANK_DEAD);
      reported.rank(1).set_failure("Recv #3 ...: no progress for 60000 ms, waiting for rank 2");
      reported.Wait(0, 2, 60'000);
      reported.rank(2).set_still_ms(60'000);
    }
    CHECK(reported.Tell(watch, 60'000, meant).empty());
    // Two at once: which was the first is for the failure to say.
    for (uint32_t r = 0; r < 3; ++r) {
      reported.rank(r).set_life(v1::RANK_DEAD);
      reported.rank(r).clear_failure();
    }
    CHECK(reported.Tell(watch, 61'000, meant).empty());
  }
}

TEST_CASE("a stopped rank that is killed is told as both") {
  Reported reported;
  StallWatch watch;
  reported.rank(0);
  reported.rank(1).set_life(v1::RANK_STOPPED);
  CHECK(reported.Tell(watch, 0).size() == 1);
  reported.rank(1).set_life(v1::RANK_DEAD);
  const auto news = reported.Tell(watch, 5000);
  REQUIRE(news.size() == 1);
  CHECK_THAT(news[0].text(), Contains("is dead"));
  CHECK(reported.Tell(watch, 6000).empty());
  // An attempt that has ended has no ranks to tell of.
  reported.report_.set_phase(v1::ATTEMPT_ENDED);
  CHECK(reported.Tell(watch, 7000).empty());
}

}  // namespace
}  // namespace trireme::coordinator
