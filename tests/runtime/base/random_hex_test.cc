// What is drawn as names and keys.
#include "runtime/base/random_hex.h"

#include <catch2/catch.hpp>
#include <set>

namespace trireme::base {
namespace {

TEST_CASE("random hex: so many digits, of all kinds, and other ones each time") {
  std::set<std::string> drawn;
  std::set<char> digits;
  for (int draw = 0; draw < 100; ++draw) {
    const std::string text = RandomHex(16);
    REQUIRE(text.size() == 16);
    CHECK(text.find_first_not_of("0123456789abcdef") == std::string::npos);
    drawn.insert(text);
    digits.insert(text.begin(), text.end());
  }
  CHECK(drawn.size() == 100);
  CHECK(digits.size() == 16);  // one is missing once in 10^44 runs
  CHECK(RandomHex(512).size() == 512);
  CHECK(RandomHex(0).empty());
}

}  // namespace
}  // namespace trireme::base
