// Words of messages.
#include "runtime/base/text.h"

#include <catch2/catch.hpp>

namespace trireme::base {
namespace {

TEST_CASE("one of a thing is not many") {
  CHECK(Counted(1, "rank") == "1 rank");
  CHECK(Counted(0, "rank") == "0 ranks");
  CHECK(Counted(2U, "layer") == "2 layers");
  CHECK(Counted(-1, "rank") == "-1 ranks");
}

TEST_CASE("a text is its parts, one after another") { CHECK(Text("a", 1, ' ', "b") == "a1 b"); }

}  // namespace
}  // namespace trireme::base
