// Positions in words.
#include "runtime/recorder/position_text.h"

#include <catch2/catch.hpp>

namespace trireme::recorder {
namespace {

TEST_CASE("positions read like the schedule") {
  CHECK(DescribePosition({12, 5, 3, 0, 2, -1}) == "I of micro-batch 2, virtual stage 0");
  CHECK(DescribePosition({12, 5, 7, 1, 5, 3}) ==
        "RECV_ACT of micro-batch 5, virtual stage 1 (peer rank 3)");
  CHECK(DescribePosition({12, 5, 10, 1, 5, -1}) == "REDUCE");
  CHECK(DescribePosition({12, 5, 9999, 1, 5, -1}) == "instruction 5");
  CHECK(DescribePosition({}) == "instruction 0");
}

TEST_CASE("a wait says for whom and where") {
  CHECK(DescribeWait({}).empty());
  CHECK(DescribeWait({1, 3, 1, false, "pipeline"}) == "waiting for rank 3 over group 'pipeline'");
  CHECK(DescribeWait({1, 0, 3, true, "data"}) ==
        "waiting for rank 0 and 2 more in a collective of group 'data'");
  CHECK(DescribeWait({1, -1, 0, true, "world"}) == "waiting in a collective of group 'world'");
}

}  // namespace
}  // namespace trireme::recorder
