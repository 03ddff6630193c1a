// What counts as standing still: until it is told to move, and in its attempt alone.
#include "runtime/report/stalled_ranks.h"

#include <catch2/catch.hpp>

namespace trireme::report {
namespace {

v1::Event Stall(uint32_t attempt, uint32_t rank, bool over) {
  v1::Event event;
  event.set_attempt(attempt);
  event.mutable_stalled()->set_rank(rank);
  event.mutable_stalled()->set_over(over);
  event.mutable_stalled()->set_text(std::string("rank ") + static_cast<char>('0' + rank));
  return event;
}

}  // namespace

TEST_CASE("a rank stands still until it is told to move, and no longer than its attempt") {
  using Texts = std::vector<std::string>;
  v1::Job job;
  job.mutable_status()->set_attempt(2);
  CHECK(StalledRanksOf(job, {}) == Texts{});
  CHECK(StalledRanksOf(job, {Stall(1, 4, false), v1::Event()}) == Texts{});
  CHECK(StalledRanksOf(job, {Stall(1, 4, false), Stall(2, 5, false), Stall(2, 3, false)}) ==
        Texts{"rank 3", "rank 5"});
  CHECK(StalledRanksOf(job, {Stall(2, 3, false), Stall(2, 5, false), Stall(2, 3, true)}) ==
        Texts{"rank 5"});
  CHECK(StalledRanksOf(job, {Stall(2, 3, false), Stall(3, 1, false)}) == Texts{});
}

}  // namespace trireme::report
