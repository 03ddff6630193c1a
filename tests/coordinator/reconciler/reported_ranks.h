// One report of ranks by hand, for tests of what a StallWatch makes of it.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/reconciler/stall_watch.h"

namespace trireme::coordinator {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1'000'000'000'000;

// Ranks at step 7 that have done whole steps, on one node, unless the test says otherwise.
class Reported {
 public:
  v1::RankReport& rank(uint32_t number) {
    for (v1::RankReport& one : *report_.mutable_ranks()) {
      if (one.rank() == number) return one;
    }
    v1::RankReport& one = *report_.add_ranks();
    one.set_rank(number);
    one.set_life(v1::RANK_ALIVE);
    one.set_step(7);
    one.set_position("NORM");
    one.set_peer(-1);
    one.mutable_timing()->set_step(6);
    return one;
  }
  void Wait(uint32_t number, int32_t peer, uint64_t ms) {
    rank(number).set_waiting_ms(ms);
    rank(number).set_peer(peer);
  }
  std::vector<v1::RankStalled> Tell(StallWatch& watch, int64_t ms, bool deaths_are_meant = false) {
    watch.Hear("n1", report_, kStart + ms * kMs);
    auto news = watch.News(deaths_are_meant);
    for (const v1::RankStalled& one : news) watch.Told(one, kStart + ms * kMs);
    return news;
  }
  v1::AttemptReport report_;
};

}  // namespace trireme::coordinator
