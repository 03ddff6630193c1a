// Each rule of the StallWatch at its border, one report after another.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/coordinator/reconciler/reported_ranks.h"

namespace trireme::coordinator {
namespace {

using Catch::Contains;

// At `at_ms` rank 1 has not moved and rank 0 has waited for it, both since `begin_ms`.
std::vector<v1::RankStalled> TellHeldUp(Reported& reported, StallWatch& watch, int64_t at_ms,
                                        int64_t begin_ms = 0) {
  reported.Wait(0, 1, static_cast<uint64_t>(at_ms - begin_ms));
  reported.rank(1).set_still_ms(static_cast<uint64_t>(at_ms - begin_ms));
  return reported.Tell(watch, at_ms);
}

// Rank 1 has held up others for five seconds, which nobody is told of, and goes on as `go_on` says.
// Whether it is then told of after fifteen more: not where five are ordinary for this attempt.
template <typename GoOn>
bool ToldAfterGoingOn(const GoOn& go_on) {
  Reported reported;
  StallWatch watch;
  reported.rank(2);
  TellHeldUp(reported, watch, 0);
  REQUIRE(TellHeldUp(reported, watch, 5000).empty());
  go_on(reported);
  reported.Tell(watch, 6000);
  reported.rank(1).clear_waiting_ms();
  reported.rank(1).set_peer(-1);
  return !TellHeldUp(reported, watch, 30'000, 15'000).empty();
}

}  // namespace

TEST_CASE("a stall is told at its limit and not before") {
  const StallPolicy policy;
  REQUIRE(policy.least == std::chrono::milliseconds(10'000));
  REQUIRE(policy.before_first_step == std::chrono::milliseconds(60'000));
  REQUIRE(policy.times_longest == 4);
  for (const uint64_t steps_done : {0, 1}) {
    CAPTURE(steps_done);
    const int64_t limit_ms = steps_done == 0 ? 60'000 : 10'000;
    Reported reported;
    StallWatch watch;
    reported.rank(1).mutable_timing()->set_step(steps_done);
    TellHeldUp(reported, watch, 0);
    CHECK(TellHeldUp(reported, watch, limit_ms - 1).empty());
    const auto news = TellHeldUp(reported, watch, limit_ms);
    REQUIRE(news.size() == 1);
    CHECK_THAT(news[0].text(), Contains("at step 7, NORM; rank 0 waits for it"));
  }
}

TEST_CASE("four times the longest stillness that an attempt went on from is none yet") {
  for (const bool first_step : {false, true}) {
    CAPTURE(first_step);
    // Before the first step the longer of both limits counts.
    const int64_t stillness_ms = first_step ? 16'000 : 5'000;
    Reported reported;
    StallWatch watch;
    if (first_step) reported.rank(1).clear_timing();
    TellHeldUp(reported, watch, 0);
    CHECK(TellHeldUp(reported, watch, stillness_ms).empty());
    CHECK(TellHeldUp(reported, watch, 20'000, 20'000).empty());
    const int64_t limit_at = 20'000 + 4 * stillness_ms;
    CHECK(TellHeldUp(reported, watch, limit_at - 1, 20'000).empty());
    CHECK(TellHeldUp(reported, watch, limit_at, 20'000).size() == 1);
  }
}

TEST_CASE("any one sign of movement ends a stillness") {
  CHECK_FALSE(ToldAfterGoingOn([](Reported& reported) { reported.rank(1).set_step(8); }));
  CHECK_FALSE(ToldAfterGoingOn([](Reported& reported) { reported.rank(1).set_position("STEP"); }));
  CHECK_FALSE(ToldAfterGoingOn([](Reported& reported) { reported.rank(1).set_still_ms(4999); }));
  CHECK_FALSE(ToldAfterGoingOn([](Reported& reported) { reported.Wait(1, 2, 100); }));
  // The same said again is none, and what comes next belongs to the same stillness.
  CHECK(ToldAfterGoingOn([](Reported&) {}));
}

TEST_CASE("a stillness is as long as it was at its longest") {
  Reported reported;
  StallWatch watch;
  TellHeldUp(reported, watch, 0);
  TellHeldUp(reported, watch, 5000);
  // Rank 0 has begun another wait for it, which is shorter.
  reported.Wait(0, 1, 1000);
  reported.rank(1).set_still_ms(6000);
  reported.Tell(watch, 6000);
  reported.rank(1).set_step(8);
  reported.rank(1).set_still_ms(0);
  reported.Tell(watch, 7000);
  CHECK(TellHeldUp(reported, watch, 22'000, 7000).empty());
  CHECK(TellHeldUp(reported, watch, 27'000, 7000).size() == 1);
}

TEST_CASE("what a rank held up before it was stopped is nothing that the attempt went on from") {
  Reported reported;
  StallWatch watch;
  TellHeldUp(reported, watch, 0);
  CHECK(TellHeldUp(reported, watch, 8000).empty());
  reported.rank(1).set_life(v1::RANK_STOPPED);
  CHECK(reported.Tell(watch, 9000).size() == 1);
  reported.rank(1).set_life(v1::RANK_ALIVE);
  reported.rank(1).set_still_ms(0);
  CHECK(reported.Tell(watch, 10'000).size() == 1);  // it goes on
  CHECK(TellHeldUp(reported, watch, 21'000, 10'000).size() == 1);
}

TEST_CASE("the time of a stop is no stillness of the rank") {
  Reported reported;
  StallWatch watch;
  TellHeldUp(reported, watch, 0);
  reported.rank(1).set_life(v1::RANK_STOPPED);
  watch.Hear("n1", reported.report_, kStart + 1000 * kMs);  // nobody is told of it
  // It lives again, and its own clock says that it has not moved all the time.
  reported.rank(1).set_life(v1::RANK_ALIVE);
  CHECK(TellHeldUp(reported, watch, 40'000).empty());
  CHECK(TellHeldUp(reported, watch, 49'999).empty());
  CHECK(TellHeldUp(reported, watch, 50'000).size() == 1);
}

TEST_CASE("as many who wait are named as a line holds") {
  for (const uint32_t waiting : {8, 10}) {
    Reported reported;
    StallWatch watch;
    reported.rank(99).clear_position();
    reported.Tell(watch, 0);
    for (uint32_t r = 0; r < waiting; ++r) reported.Wait(r, 99, 12'000);
    reported.rank(99).set_still_ms(12'000);
    const auto news = reported.Tell(watch, 12'000);
    REQUIRE(news.size() == 1);
    CHECK(news[0].text() ==
          std::string("rank 99 on node n1 has not moved for 12 s at step 7; ranks "
                      "0, 1, 2, 3, 4, 5, 6, 7") +
              (waiting == 8 ? "" : " and 2 more") + " wait for it");
  }
}

TEST_CASE("nobody is named where it is not known who is waited for") {
  const auto told = [](const std::function<void(Reported&)>& with) {
    Reported reported;
    StallWatch watch;
    for (uint32_t r = 0; r < 4; ++r) reported.rank(r);
    reported.Tell(watch, 0);
    with(reported);
    for (uint32_t r = 0; r < 4; ++r) reported.rank(r).set_still_ms(30'000);
    std::vector<uint32_t> ranks;
    for (const v1::RankStalled& news : reported.Tell(watch, 30'000)) ranks.push_back(news.rank());
    return ranks;
  };
  const std::vector<uint32_t> nobody;
  // A sum, for which more than one is still at work.
  CHECK(told([](Reported& r) { r.Wait(0, -1, 30'000); }) == nobody);
  CHECK(told([](Reported& r) {
          for (uint32_t rank = 0; rank < 3; ++rank) r.Wait(rank, -1, 30'000);
        }) == std::vector<uint32_t>{3});
  // A rank of a node that has not been heard of, and a circle, with one beside them at work.
  CHECK(told([](Reported& r) {
          for (uint32_t rank = 0; rank < 3; ++rank) r.Wait(rank, 77, 30'000);
        }) == nobody);
  CHECK(told([](Reported& r) {
          for (uint32_t rank = 0; rank < 3; ++rank) {
            r.Wait(rank, static_cast<int32_t>((rank + 1) % 3), 30'000);
          }
        }) == nobody);
  // Rank 0 is one like any other.
  CHECK(told([](Reported& r) { r.Wait(1, 0, 30'000); }) == std::vector<uint32_t>{0});
  // Who has only just begun to wait, who waits for somebody between, and who stands still himself.
  CHECK(told([](Reported& r) { r.Wait(0, 1, 1000); }) == nobody);
  CHECK(told([](Reported& r) {
          r.Wait(0, 1, 30'000);
          r.Wait(1, 2, 5000);
        }) == nobody);
  CHECK(told([](Reported& r) {
          r.Wait(0, 1, 30'000);
          r.rank(0).set_life(v1::RANK_STOPPED);
        }) == std::vector<uint32_t>{0});
}

TEST_CASE("who waits for somebody else is not said to wait for the one at work") {
  for (const bool circle : {false, true}) {
    CAPTURE(circle);
    Reported reported;
    StallWatch watch;
    for (uint32_t r = 0; r < 4; ++r) reported.rank(r);
    reported.Tell(watch, 0);
    reported.Wait(0, circle ? 1 : 77, 12'000);
    reported.Wait(1, circle ? 0 : 77, 12'000);
    reported.Wait(2, 3, 12'000);
    reported.rank(3).set_still_ms(12'000);
    const auto news = reported.Tell(watch, 12'000);
    REQUIRE(news.size() == 1);
    CHECK_THAT(news[0].text(), Contains("rank 3") && Contains("; rank 2 waits for it"));
  }
}

TEST_CASE("nobody is held up any more by whom nobody waits for") {
  Reported reported;
  StallWatch watch;
  reported.rank(1).clear_timing();
  TellHeldUp(reported, watch, 0);
  CHECK(TellHeldUp(reported, watch, 30'000).empty());
  reported.rank(0).clear_waiting_ms();
  reported.rank(1).mutable_timing()->set_step(1);
  reported.rank(1).set_still_ms(31'000);
  CHECK(reported.Tell(watch, 31'000).empty());
}

TEST_CASE("who was told of goes on when it waits itself or has moved since") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    Reported reported;
    StallWatch watch;
    reported.rank(2);
    TellHeldUp(reported, watch, 0);
    REQUIRE(TellHeldUp(reported, watch, 12'000).size() == 1);
    // It moved last when it was told of.
    reported.rank(1).set_still_ms(1000);
    CHECK(reported.Tell(watch, 13'000).empty());
    if (waits) {
      reported.Wait(1, 2, 100);
      reported.rank(1).set_still_ms(20'000);
    } else {
      reported.rank(1).set_still_ms(1999);
    }
    const auto news = reported.Tell(watch, 14'000);
    REQUIRE(news.size() == 1);
    CHECK(news[0].over());
    CHECK(news[0].text() == "rank 1 on node n1 goes on");
  }
}

TEST_CASE("where a rank is dead or has failed a stop is told and a stall is not") {
  for (const bool dead : {false, true}) {
    CAPTURE(dead);
    Reported reported;
    StallWatch watch;
    reported.rank(2);
    TellHeldUp(reported, watch, 0);
    if (dead) {
      reported.rank(2).set_life(v1::RANK_DEAD);
    } else {
      reported.rank(2).set_failure("no progress for 60000 ms");
    }
    CHECK(TellHeldUp(reported, watch, 30'000).size() == (dead ? 1 : 0));  // the death
    reported.rank(1).set_life(v1::RANK_STOPPED);
    const auto news = reported.Tell(watch, 31'000);
    REQUIRE(news.size() == 1);
    CHECK_THAT(news[0].text(), Contains("rank 1") && Contains("is stopped"));
    CHECK(reported.Tell(watch, 32'000).empty());  // nor the death once more
  }
  // A stop ends nothing: who stalls meanwhile is told of.
  Reported reported;
  StallWatch watch;
  reported.rank(2);
  TellHeldUp(reported, watch, 0);
  reported.rank(2).set_life(v1::RANK_STOPPED);
  CHECK(TellHeldUp(reported, watch, 30'000).size() == 2);
}

TEST_CASE("a rank that is dead when it is first heard of is told") {
  Reported reported;
  StallWatch watch;
  reported.rank(0);
  reported.rank(1).set_life(v1::RANK_DEAD);
  CHECK(reported.Tell(watch, 0).size() == 1);
}

TEST_CASE("what was told before a restart is what the ranks are found in") {
  Reported reported;
  for (uint32_t r = 0; r < 4; ++r) reported.rank(r);
  v1::RankStalled dead, stopped;
  dead.set_rank(1);
  stopped.set_rank(2);
  StallWatch watch;
  for (const v1::RankStalled& told : {dead, stopped}) watch.Told(told, kStart);
  reported.rank(1).set_life(v1::RANK_DEAD);
  reported.rank(2).set_life(v1::RANK_STOPPED);
  CHECK(reported.Tell(watch, 1000).empty());
  // The stop alone: that it is killed then is news.
  StallWatch other;
  other.Told(stopped, kStart);
  reported.rank(1).set_life(v1::RANK_ALIVE);
  CHECK(reported.Tell(other, 1000).empty());
  reported.rank(2).set_life(v1::RANK_DEAD);
  CHECK(reported.Tell(other, 2000).size() == 1);
}

TEST_CASE("ranks of a node whose part has ended are looked at no more") {
  Reported reported;
  StallWatch watch;
  reported.rank(0).set_life(v1::RANK_STOPPED);
  watch.Hear("n1", reported.report_, kStart);
  CHECK(watch.News(false).size() == 1);
  reported.report_.set_phase(v1::ATTEMPT_ENDED);
  CHECK(reported.Tell(watch, 1000).empty());
}

}  // namespace trireme::coordinator
