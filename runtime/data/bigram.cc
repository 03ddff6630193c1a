// Counts of pairs, dense for small vocabularies; the text passes by in blocks that overlap by one
// token.
#include "runtime/data/bigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

namespace trireme::data {
namespace {

// Counts of (first, second), dense where that takes at most 64 MiB.
class PairCounts {
 public:
  explicit PairCounts(int64_t vocab_size) : vocab_size_(static_cast<uint64_t>(vocab_size)) {
    if (vocab_size <= 2896) dense_.assign(vocab_size_ * vocab_size_, 0);
  }
  void Add(int32_t first, int32_t second) {
    const uint64_t key = Key(first, second);
    dense_.empty() ? ++sparse_[key] : ++dense_[key];
  }
  uint64_t Get(int32_t first, int32_t second) const {
    const uint64_t key = Key(first, second);
    if (!dense_.empty()) return dense_[key];
    const auto found = sparse_.find(key);
    return found == sparse_.end() ? 0 : found->second;
  }

 private:
  uint64_t Key(int32_t first, int32_t second) const {
    return static_cast<uint64_t>(first) * vocab_size_ + static_cast<uint64_t>(second);
  }
  uint64_t vocab_size_;
  std::vector<uint64_t> dense_;
  std::unordered_map<uint64_t, uint64_t> sparse_;
};

// Calls visit(first, second) for each pair of neighbours of the split.
template <typename Visit>
void ForEachPair(const Dataset& dataset, Split split, const Visit& visit) {
  const int64_t tokens = dataset.tokens(split);
  std::vector<int32_t> ids(1 << 16);
  for (int64_t begin = 0; begin + 1 < tokens; begin += static_cast<int64_t>(ids.size()) - 1) {
    const auto count =
        static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(ids.size()), tokens - begin));
    dataset.Read(split, begin, std::span(ids).first(count));
    for (size_t i = 0; i + 1 < count; ++i) visit(ids[i], ids[i + 1]);
  }
}

}  // namespace

double ByteBigramLoss(const Dataset& dataset) {
  const int64_t targets = dataset.tokens(Split::kValidation) - 1;
  if (targets < 1) return std::numeric_limits<double>::quiet_NaN();
  const int64_t vocab_size = dataset.tokenizer().vocab_size();
  PairCounts pairs(vocab_size);
  std::vector<uint64_t> firsts(static_cast<size_t>(vocab_size), 0);
  ForEachPair(dataset, Split::kTrain, [&](int32_t first, int32_t second) {
    pairs.Add(first, second);
    ++firsts[static_cast<size_t>(first)];
  });
  double sum = 0;
  ForEachPair(dataset, Split::kValidation, [&](int32_t first, int32_t second) {
    const double seen = static_cast<double>(pairs.Get(first, second)) + 1.0;
    const double of =
        static_cast<double>(firsts[static_cast<size_t>(first)]) + static_cast<double>(vocab_size);
    sum -= std::log(seen / of);
  });
  return sum / static_cast<double>(targets);
}

}  // namespace trireme::data
