// Which window of the text is sample i: a pure function of (seed, i), so that the position in the
// data is one integer and every layout and every restart sees the same samples.
#pragma once

#include <cstdint>

namespace trireme::data {

enum class Order : uint8_t { kRandom, kShuffled, kSequential };

// A permutation of [0, size) keyed by (seed, epoch), without a table: a Feistel network over the
// next power of four, walked along its cycle until the value is inside (Black and Rogaway, "Ciphers
// with arbitrary finite domains", 2002). `index` < size.
uint64_t PermuteIndex(uint64_t index, uint64_t size, uint64_t seed, uint64_t epoch);

struct SampleOrder {
  Order order = Order::kRandom;
  uint64_t seed = 0;
  int64_t tokens = 0;           // of the split, > sequence_length
  int64_t sequence_length = 0;  // T

  // Windows of T + 1 tokens overlapping by one.
  int64_t windows() const { return (tokens - 1) / sequence_length; }
  // First token of sample `index` >= 0; start + T < tokens.
  int64_t Start(int64_t index) const;
};

}  // namespace trireme::data
