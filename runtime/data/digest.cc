// By chunks, since a text may be larger than memory for its ids.
#include "runtime/data/digest.h"

#include <algorithm>
#include <span>
#include <vector>

namespace trireme::data {

uint64_t DigestOf(const Dataset& dataset) {
  // Fowler, Noll, Vo: www.isthe.com/chongo/tech/comp/fnv, 64 bits, an id at a time.
  constexpr uint64_t kOffset = 14695981039346656037u;
  constexpr uint64_t kPrime = 1099511628211u;
  uint64_t digest = kOffset;
  std::vector<int32_t> chunk(1 << 16);
  for (const Split split : {Split::kTrain, Split::kValidation}) {
    const int64_t tokens = dataset.tokens(split);
    for (int64_t begin = 0; begin < tokens; begin += static_cast<int64_t>(chunk.size())) {
      const auto count = std::min(static_cast<int64_t>(chunk.size()), tokens - begin);
      const std::span<int32_t> part(chunk.data(), static_cast<size_t>(count));
      dataset.Read(split, begin, part);
      for (const int32_t token : part) digest = (digest ^ static_cast<uint32_t>(token)) * kPrime;
    }
  }
  return digest;
}

}  // namespace trireme::data
