#include "runtime/comm/node_memory.h"

#include <algorithm>

namespace trireme::comm {

NodeMemories::Place NodeMemories::Find(std::span<const std::byte> data) const {
  const auto begin = reinterpret_cast<uintptr_t>(data.data());
  for (size_t k = 0; k < std::min(memories_.size(), kMost); ++k) {
    const auto memory = memories_[k].lock();
    if (memory == nullptr) continue;
    const auto first = reinterpret_cast<uintptr_t>(memory->own().data());
    const size_t bytes = memory->own().size();
    if (begin < first || begin - first > bytes || data.size() > bytes - (begin - first)) continue;
    return {static_cast<int64_t>(k), static_cast<int64_t>(begin - first)};
  }
  return {};
}

uint64_t NodeMemories::Reaching(std::span<const int> ranks) const {
  uint64_t reaching = 0;
  for (size_t k = 0; k < std::min(memories_.size(), kMost); ++k) {
    const auto memory = memories_[k].lock();
    const auto reaches = [&](int rank) { return memory->Of(rank) != nullptr; };
    if (memory != nullptr && std::all_of(ranks.begin(), ranks.end(), reaches))
      reaching |= uint64_t{1} << k;
  }
  return reaching;
}

}  // namespace trireme::comm
