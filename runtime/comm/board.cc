#include "runtime/comm/board.h"

#include "runtime/base/check.h"

namespace trireme::comm {

Board::Board(std::span<std::byte> memory, int rank, int ranks)
    : memory_(memory.data()), rank_(rank), ranks_(ranks) {
  TRIREME_CHECK(memory.size() >= BytesFor(ranks));
  TRIREME_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kLineBytes == 0);
}

bool Board::AllPosted() {
  if (seen_post_ != posted_) {
    seen_post_ = posted_;
    seen_ = 0;
  }
  while (seen_ < ranks_ && HasPosted(seen_)) ++seen_;
  return seen_ == ranks_;
}

uint64_t Board::WorkOfAll() const {
  uint64_t work = 0;
  for (int rank = 0; rank < ranks_; ++rank) work += Work(rank).load(std::memory_order_relaxed);
  return work;
}

}  // namespace trireme::comm
