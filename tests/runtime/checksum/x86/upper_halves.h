// Which upper halves of vector registers are in use after some work: what they hold says it on
// every processor with AVX, and XGETBV of register 1 (Intel SDM volume 1, 13.6) on those that have
// it.
#pragma once

#include <cpuid.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>

namespace trireme::checksum {

inline constexpr uint32_t kUpperHalves =
    1U << 2 | 1U << 6;  // Of YMM0-15, and of ZMM0-15 above them.

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

inline bool HasAvx() {
  Registers r;
  if (__get_cpuid(1, &r.a, &r.b, &r.c, &r.d) == 0) return false;
  constexpr uint32_t kOsSavesAvx = 1U << 27 | 1U << 28;
  return (r.c & kOsSavesAvx) == kOsSavesAvx;
}

inline bool HasInUseBits() {
  Registers r;
  return __get_cpuid_count(13, 1, &r.a, &r.b, &r.c, &r.d) != 0 && (r.a & 1U << 2) != 0;
}

inline uint32_t UpperHalvesInUse() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return low & kUpperHalves;
}

using UpperHalves = std::array<std::array<uint64_t, 2>, 16>;

// Stored before anything else runs: code of tests has no AVX instruction, and others leave the
// upper halves as they are.
template <typename Work>
UpperHalves UpperHalvesAfter(const Work& work) {
  alignas(16) UpperHalves halves;
  work();
  asm volatile(
      "vextractf128 $1, %%ymm0, 0(%0)\n\tvextractf128 $1, %%ymm1, 16(%0)\n\t"
      "vextractf128 $1, %%ymm2, 32(%0)\n\tvextractf128 $1, %%ymm3, 48(%0)\n\t"
      "vextractf128 $1, %%ymm4, 64(%0)\n\tvextractf128 $1, %%ymm5, 80(%0)\n\t"
      "vextractf128 $1, %%ymm6, 96(%0)\n\tvextractf128 $1, %%ymm7, 112(%0)\n\t"
      "vextractf128 $1, %%ymm8, 128(%0)\n\tvextractf128 $1, %%ymm9, 144(%0)\n\t"
      "vextractf128 $1, %%ymm10, 160(%0)\n\tvextractf128 $1, %%ymm11, 176(%0)\n\t"
      "vextractf128 $1, %%ymm12, 192(%0)\n\tvextractf128 $1, %%ymm13, 208(%0)\n\t"
      "vextractf128 $1, %%ymm14, 224(%0)\n\tvextractf128 $1, %%ymm15, 240(%0)"
      :
      : "r"(halves.data())
      : "memory");
  return halves;
}

// `work` must have left something in the registers that it used: give it no zeros.
template <typename Work>
void CheckNoUpperHalvesInUse(const Work& work) {
  asm volatile("vzeroupper" ::: "memory");
  const UpperHalves halves = UpperHalvesAfter(work);
  for (size_t index = 0; index < halves.size(); ++index) {
    INFO("ymm" << index);
    CHECK((halves[index][0] | halves[index][1]) == 0);
  }
  if (!HasInUseBits()) return;
  asm volatile("vzeroupper" ::: "memory");
  REQUIRE(UpperHalvesInUse() == 0);
  work();
  CHECK(UpperHalvesInUse() == 0);
}

}  // namespace trireme::checksum
