// bfloat16 against its definition, over every f32 that matters to rounding.
#include "runtime/tensor/bf16.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace trireme::tensor {
namespace {

TEST_CASE("bf16: every value comes back through f32") {
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    BFloat16 value;
    value.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      CHECK(std::isnan(static_cast<float>(BFloat16(wide))));
    } else {
      REQUIRE(BFloat16(wide) == value);
    }
  }
}

TEST_CASE("bf16: rounding is to the nearest, ties to even") {
  // Between neighbours of each exponent: a quarter, a half and three quarters of the way.
  for (uint32_t bits = 0; bits < 0x7F7F; ++bits) {
    const auto exact = [](uint32_t half) { return std::bit_cast<float>(half << 16); };
    const auto between = [&](uint32_t rest) { return std::bit_cast<float>(bits << 16 | rest); };
    REQUIRE(BFloat16(between(0x4000)).bits == bits);
    REQUIRE(BFloat16(between(0x8000)).bits == bits + (bits & 1));
    REQUIRE(BFloat16(between(0x8001)).bits == bits + 1);
    REQUIRE(BFloat16(-between(0x8001)).bits == (bits + 1 | 0x8000));
    REQUIRE(BFloat16(exact(bits)).bits == bits);
  }
  CHECK(std::isinf(static_cast<float>(BFloat16(std::numeric_limits<float>::max()))));
  CHECK(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace trireme::tensor
