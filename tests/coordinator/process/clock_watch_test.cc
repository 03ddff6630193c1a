// A clock that is set is told from time that passes.
#include "coordinator/process/clock_watch.h"

#include <catch2/catch.hpp>

namespace trireme::coordinator {
namespace {

constexpr int64_t kSecond = 1000000000;

TEST_CASE("clock watch: a clock that is set is seen once and one that drifts is not") {
  ClockWatch watch;
  CHECK(watch.Step(1000 * kSecond, 5 * kSecond) == 0);
  CHECK(watch.Step(1010 * kSecond, 15 * kSecond) == 0);
  CHECK(watch.Step(1020 * kSecond + kSecond / 2, 25 * kSecond) == 0);
  CHECK(watch.Step(5030 * kSecond, 35 * kSecond) == 4000 * kSecond - kSecond / 2);
  CHECK(watch.Step(5040 * kSecond, 45 * kSecond) == 0);
  CHECK(watch.Step(50 * kSecond, 55 * kSecond) == -5000 * kSecond);
}

}  // namespace
}  // namespace trireme::coordinator
