// Test cases that fail and skip, for tests/house/skips_test.py: none runs unless it is asked for.
#include <catch2/catch.hpp>

#include "tests/skip.h"

TEST_CASE("planted failure", "[.]") { CHECK(false); }
TEST_CASE("planted skip", "[.]") { TRIREME_SKIP("not here: a moon"); }
TEST_CASE("planted success", "[.]") { CHECK(true); }
