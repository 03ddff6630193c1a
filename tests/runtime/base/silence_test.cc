// Silence counts what was listened to: whoever was stopped meanwhile has heard nothing and knows
// nothing.
#include "runtime/base/silence.h"

#include <catch2/catch.hpp>

namespace trireme::base {

using std::chrono::milliseconds;

TEST_CASE("silence: it lasts while nothing comes, and begins anew with what does") {
  const Silence::Clock::time_point start{std::chrono::hours(1)};
  Silence silence(start);
  CHECK(silence.length() == milliseconds(0));
  for (int i = 1; i <= 10; ++i)
    CHECK(silence.Look(start + i * milliseconds(100)) == milliseconds(0));
  CHECK(silence.length() == milliseconds(1000));
  CHECK(silence.since() == start);
  silence.Break();
  CHECK(silence.length() == milliseconds(0));
  CHECK(silence.since() == start + milliseconds(1000));
  silence.Look(start + milliseconds(1200));
  CHECK(silence.length() == milliseconds(200));
}

TEST_CASE("silence: time in which nobody looked is none") {
  const Silence::Clock::time_point start{std::chrono::hours(1)};
  Silence silence(start);
  silence.Look(start + milliseconds(100));
  // Stopped for an hour; the longest time between two looks is all that may have been listened to.
  const auto resumed = start + milliseconds(300) + std::chrono::hours(1);
  CHECK(silence.Look(resumed) == std::chrono::hours(1));
  CHECK(silence.length() == milliseconds(100) + Silence::kLongestGap);
  silence.Look(resumed + milliseconds(50));
  CHECK(silence.length() == milliseconds(150) + Silence::kLongestGap);
}

}  // namespace trireme::base
