// The cut of the window: the board, three tables of counters, a line each, then the places of all
// pairs.
#include "runtime/comm/window.h"

#include "runtime/base/check.h"

namespace trireme::comm {

size_t Window::FixedBytes(int ranks) {
  const size_t table = static_cast<size_t>(ranks) * static_cast<size_t>(ranks);
  return (Board::BytesFor(ranks) + 3 * table * kLineBytes + 4095) / 4096 * 4096;
}

size_t Window::BytesFor(int ranks, size_t piece_bytes) {
  const size_t table = static_cast<size_t>(ranks) * static_cast<size_t>(ranks);
  return FixedBytes(ranks) +
         table * kDepth * ((piece_bytes + kLineBytes - 1) / kLineBytes * kLineBytes);
}

Window::Window(std::span<std::byte> memory, int rank, int ranks)
    : memory_(memory), board_(memory, rank, ranks), rank_(rank), ranks_(ranks) {
  const size_t places = static_cast<size_t>(ranks) * static_cast<size_t>(ranks) * kDepth;
  TRIREME_CHECK(memory.size() > FixedBytes(ranks));
  piece_bytes_ = (memory.size() - FixedBytes(ranks)) / places / kLineBytes * kLineBytes;
  TRIREME_CHECK(piece_bytes_ > 0);
  TRIREME_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kLineBytes == 0);
}

bool Window::RoomForSum(int* behind) const {
  const uint64_t put = Put(rank_, rank_);
  for (int reader = 0; reader < ranks_; ++reader) {
    if (reader == rank_ || put - UsedBy(rank_, rank_, reader) < kDepth) continue;
    if (behind != nullptr) *behind = reader;
    return false;
  }
  return true;
}

}  // namespace trireme::comm
