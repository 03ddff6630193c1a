#include "coordinator/scheduler/fitting.h"

#include <algorithm>
#include <tuple>

namespace trireme::coordinator {
namespace {

uint64_t Left(uint64_t there, uint64_t each, uint64_t ranks) {
  uint64_t taken = 0;
  if (__builtin_mul_overflow(each, ranks, &taken)) return 0;
  return there > taken ? there - taken : 0;
}

bool LessLeft(const Amount& a, const Amount& b) {
  return std::tie(a.gpus, a.cpus, a.memory_bytes) < std::tie(b.gpus, b.cpus, b.memory_bytes);
}

}  // namespace

Amount AmountOfRank(const v1::ResourceRequest& request) {
  return {request.cpus_per_rank(), request.memory_bytes_per_rank(), request.gpus_per_rank()};
}

uint64_t RoomFor(const Amount& rank, const Amount& there, uint64_t most) {
  if (rank.cpus > 0) most = std::min(most, there.cpus / rank.cpus);
  if (rank.memory_bytes > 0) most = std::min(most, there.memory_bytes / rank.memory_bytes);
  if (rank.gpus > 0) most = std::min(most, there.gpus / rank.gpus);
  return most;
}

Amount Without(const Amount& there, const Amount& rank, uint64_t ranks) {
  return {Left(there.cpus, rank.cpus, ranks), Left(there.memory_bytes, rank.memory_bytes, ranks),
          Left(there.gpus, rank.gpus, ranks)};
}

uint64_t RoomInAll(const Amount& rank, uint64_t most, const std::vector<Amount>& there,
                   const std::vector<bool>& allowed) {
  uint64_t room = 0;
  for (size_t i = 0; i < there.size() && room < most; ++i) {
    if (allowed[i]) room += RoomFor(rank, there[i], most - room);
  }
  return room;
}

std::vector<Share> Fit(const Amount& rank, uint64_t ranks, const std::vector<Amount>& there,
                       const std::vector<bool>& allowed) {
  std::vector<Share> shares;
  if (RoomInAll(rank, ranks, there, allowed) < ranks) return shares;
  std::vector<bool> open = allowed;
  // Each round takes a node, and the sum above says that they suffice.
  while (ranks > 0) {
    Share best;
    for (size_t i = 0; i < there.size(); ++i) {
      if (!open[i]) continue;
      const uint64_t room = RoomFor(rank, there[i], ranks);
      const bool last_of_both = room == ranks && best.ranks == ranks;
      if (room > best.ranks || (last_of_both && LessLeft(Without(there[i], rank, ranks),
                                                         Without(there[best.node], rank, ranks)))) {
        best = {i, room};
      }
    }
    shares.push_back(best);
    open[best.node] = false;
    ranks -= best.ranks;
  }
  return shares;
}

}  // namespace trireme::coordinator
