// Lengths of time as people read them.
#include "runtime/base/duration_text.h"

#include <catch2/catch.hpp>

namespace trireme::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("durations are said in two units and never as less than they are") {
  CHECK(DurationText(seconds(7200)) == "2 h");
  CHECK(DurationText(seconds(5400)) == "1 h 30 min");
  CHECK(DurationText(seconds(45)) == "45 s");
  CHECK(DurationText(seconds(90)) == "1 min 30 s");
  CHECK(DurationText(seconds(3 * 86400 + 4 * 3600)) == "3 d 4 h");
  CHECK(DurationText(seconds(7201)) == "2 h 1 min");
  CHECK(DurationText(seconds(3600 + 59 * 60 + 1)) == "2 h");
  CHECK(DurationText(seconds(86400 + 23 * 3600 + 1)) == "2 d");
  CHECK(DurationText(milliseconds(59001)) == "1 min");
  CHECK(DurationText(milliseconds(1)) == "1 s");
  CHECK(DurationText(seconds(0)) == "0 s");
  CHECK(DurationText(seconds(-5)) == "0 s");
}

}  // namespace
}  // namespace trireme::base
