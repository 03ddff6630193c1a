// Which parts of the vector registers are in use after a sum: XGETBV of register 1 says it
// (Intel SDM volume 1, 13.6), on processors that have it.
#include <cpuid.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "runtime/checksum/crc32c.h"

namespace trireme::checksum {
namespace {

constexpr uint32_t kUpperHalves = 1U << 2 | 1U << 6;  // Of YMM0-15, and of ZMM0-15 above them.

bool HasInUseBits() {
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  constexpr uint32_t kOsSavesAvx = 1U << 27 | 1U << 28;
  if ((c & kOsSavesAvx) != kOsSavesAvx) return false;
  return __get_cpuid_count(13, 1, &a, &b, &c, &d) != 0 && (a & 1U << 2) != 0;
}

uint32_t UpperHalvesInUse() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return low & kUpperHalves;
}

TEST_CASE("a sum leaves no upper halves of vector registers in use") {
  if (!HasInUseBits()) {
    WARN("this processor does not say which registers are in use");
    return;
  }
  const std::vector<std::byte> bytes(65536);
  for (const size_t length : {0, 10, 300, 4096, 65536}) {
    asm volatile("vzeroupper" ::: "memory");
    const uint32_t before = UpperHalvesInUse();
    Crc32c(std::span(bytes).first(length));
    const uint32_t after = UpperHalvesInUse();
    INFO(length << " bytes");
    REQUIRE(before == 0);
    CHECK(after == 0);
  }
}

}  // namespace
}  // namespace trireme::checksum
