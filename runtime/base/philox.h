// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11):
// a counter-based generator, so a random number is a pure function of (seed, site, step, index) and
// no layout changes it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme::base {

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock Philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = 0xD2511F53ull * counter[0];
    const uint64_t product1 = 0xCD9E8D57ull * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// FNV-1a, 64 bits: the site of a logical tensor or dropout by its name. Stable: it is part of what
// a seed means.
constexpr uint64_t SiteOf(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return hash;
}

// A random stream. `index` counts elements of the global, unpadded tensor; four elements share one
// block.
struct RandomSite {
  uint64_t seed = 0;
  uint64_t site = 0;
  uint64_t step = 0;

  // Elements 4*block .. 4*block+3.
  PhiloxBlock Block(uint64_t block) const {
    const uint64_t key = seed ^ (site * 0x9E3779B97F4A7C15ull + (site >> 29));
    return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                       static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
                      static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  }
  uint32_t Uniform32(uint64_t index) const { return Block(index / 4)[index % 4]; }
  // In [0, 1), 53 bits, from two blocks' worth of counters: element `index` of a stream of doubles.
  double Uniform(uint64_t index) const {
    const PhiloxBlock block = Block(index / 2);
    const size_t half = 2 * (index % 2);
    const uint64_t bits = (static_cast<uint64_t>(block[half]) << 32) | block[half + 1];
    return static_cast<double>(bits >> 11) * 0x1.0p-53;
  }
  // Standard normal, Box-Muller; element `index` of a stream of normals.
  double Normal(uint64_t index) const;
};

// An element is dropped if Uniform32(index) < DropThreshold(p).
constexpr uint32_t DropThreshold(double p) { return static_cast<uint32_t>(p * 4294967296.0); }

}  // namespace trireme::base
