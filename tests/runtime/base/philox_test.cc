// Philox4x32-10 against the known answers of its authors, and what a seed means: these numbers
// never change, or old jobs no longer repeat.
#include "runtime/base/philox.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace trireme::base {
namespace {

// Random123 1.14, tests/kat_vectors, the three lines "philox4x32 10".
TEST_CASE("philox: gives Random123's known answers") {
  CHECK(Philox4x32({0, 0, 0, 0}, 0, 0) ==
        PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("philox: a site's hash is FNV-1a") {
  // Fowler, Noll and Vo's published test vectors of the 64-bit FNV-1a.
  CHECK(SiteOf("") == 0xcbf29ce484222325ull);
  CHECK(SiteOf("a") == 0xaf63dc4c8601ec8cull);
  CHECK(SiteOf("foobar") == 0x85944171f73967e8ull);
}

TEST_CASE("philox: element, step, site and seed each select another number") {
  const RandomSite site{.seed = 3, .site = SiteOf("h.0.dropout"), .step = 5};
  const uint32_t first = site.Uniform32(6);
  CHECK(first == site.Block(1)[2]);
  CHECK(first != site.Uniform32(7));
  CHECK(first !=
        site.Uniform32(6 + 4 * (uint64_t{1} << 32)));  // the upper half of the counter counts
  CHECK(first != (RandomSite{4, site.site, 5}.Uniform32(6)));
  CHECK(first != (RandomSite{3, SiteOf("h.1.dropout"), 5}.Uniform32(6)));
  CHECK(first != (RandomSite{3, site.site, 6}.Uniform32(6)));
  CHECK(first != (RandomSite{3, site.site, 5 + (uint64_t{1} << 32)}.Uniform32(6)));
  CHECK(first != (RandomSite{3 + (uint64_t{1} << 32), site.site, 5}.Uniform32(6)));
}

// 40,000 numbers: means and frequencies within 5 standard deviations.
TEST_CASE("philox: uniforms and normals have their moments, dropout its frequency") {
  const RandomSite site{.seed = 1, .site = SiteOf("moments"), .step = 0};
  constexpr int kCount = 40000;
  double uniform = 0;
  double normal = 0;
  double normal_square = 0;
  double neighbours = 0;
  int dropped = 0;
  for (uint64_t index = 0; index < kCount; ++index) {
    const double u = site.Uniform(index);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    uniform += u;
    const double n = site.Normal(index);
    REQUIRE(std::isfinite(n));
    normal += n;
    normal_square += n * n;
    neighbours += n * site.Normal(index + 1);
    dropped += site.Uniform32(index) < DropThreshold(0.1) ? 1 : 0;
  }
  const double deviation = std::sqrt(static_cast<double>(kCount));
  CHECK(std::abs(uniform / kCount - 0.5) < 5 * 0.289 / deviation);
  CHECK(std::abs(normal / kCount) < 5 / deviation);
  CHECK(std::abs(normal_square / kCount - 1) < 5 * 1.415 / deviation);
  CHECK(std::abs(neighbours / kCount) < 5 / deviation);
  CHECK(std::abs(dropped / static_cast<double>(kCount) - 0.1) < 5 * 0.3 / deviation);
}

TEST_CASE("philox: the threshold of p drops p of 2^32") {
  CHECK(DropThreshold(0) == 0);
  CHECK(DropThreshold(0.5) == 0x80000000u);
  CHECK(DropThreshold(0.25) == 0x40000000u);
}

}  // namespace
}  // namespace trireme::base
