// Starts of samples from Philox; a Feistel network in place of a shuffled table.
#include "runtime/data/sample_order.h"

#include "runtime/base/check.h"
#include "runtime/base/philox.h"

namespace trireme::data {
namespace {

constexpr int kFeistelRounds = 6;

uint64_t Bits64(const base::PhiloxBlock& block) {
  return (static_cast<uint64_t>(block[1]) << 32) | block[0];
}

}  // namespace

uint64_t PermuteIndex(uint64_t index, uint64_t size, uint64_t seed, uint64_t epoch) {
  TRIREME_CHECK(index < size);
  if (size == 1) return 0;
  int half_bits = 1;
  while (half_bits < 32 && ((size - 1) >> (2 * half_bits)) != 0) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  const base::RandomSite site{seed, base::SiteOf("data.shuffle"), epoch};
  // The domain is less than four times `size`, so four walks are expected at most, and the cycle of
  // a permutation that began inside always comes back inside.
  do {
    uint64_t left = index >> half_bits;
    uint64_t right = index & mask;
    for (uint64_t round = 0; round < kFeistelRounds; ++round) {
      const uint64_t mixed = left ^ (Bits64(site.Block((round << 32) | right)) & mask);
      left = right;
      right = mixed;
    }
    index = (left << half_bits) | right;
  } while (index >= size);
  return index;
}

int64_t SampleOrder::Start(int64_t index) const {
  TRIREME_CHECK(index >= 0 && tokens > sequence_length);
  const auto sample = static_cast<uint64_t>(index);
  if (order == Order::kRandom) {
    const base::RandomSite site{seed, base::SiteOf("data.order"), 0};
    // High word of a 64 x 64 bit product: the bias is below starts / 2^64.
    const auto starts = static_cast<unsigned __int128>(tokens - sequence_length);
    return static_cast<int64_t>((starts * Bits64(site.Block(sample))) >> 64);
  }
  const auto count = static_cast<uint64_t>(windows());
  uint64_t window = sample % count;
  if (order == Order::kShuffled) window = PermuteIndex(window, count, seed, sample / count);
  return static_cast<int64_t>(window) * sequence_length;
}

}  // namespace trireme::data
