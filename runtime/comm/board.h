// Board: memory that a group's ranks share, where each posts a few bytes for all. A rank posts, and
// reads once all have posted as often as it has. Two places for each rank are enough: who posts a
// third time has seen everybody's second post, and who posts a second time has read all first ones.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/comm/choice.h"

namespace trireme::comm {

class Board {
 public:
  static constexpr size_t kRoom = static_cast<size_t>(kPostBytes);  // of a post

  // `memory` is zero-filled, aligned to 64 bytes and mapped by all ranks, possibly at different
  // addresses.
  Board(std::span<std::byte> memory, int rank, int ranks);
  static size_t BytesFor(int ranks) { return static_cast<size_t>(ranks) * kRankBytes; }

  // Where this rank writes its next post. Not before it has read what all posted last.
  std::byte* Next() const { return PostAt(rank_, posted_ + 1); }
  void Post() { Posts(rank_).store(++posted_, std::memory_order_release); }
  bool HasPosted(int rank) const { return Posts(rank).load(std::memory_order_acquire) >= posted_; }
  bool AllPosted();
  // The post of a rank that HasPosted, as many as this rank's own; stays until the next but one.
  const std::byte* Read(int rank) const { return PostAt(rank, posted_); }

  // For the others to see that something goes on between two posts.
  void CountWork() { Work(rank_).fetch_add(1, std::memory_order_relaxed); }
  uint64_t WorkOfAll() const;

 private:
  static constexpr size_t kLineBytes = 64;
  static constexpr size_t kRankBytes = kLineBytes + 2 * kRoom;
  using Counter = std::atomic_ref<uint64_t>;

  std::byte* Of(int rank) const { return memory_ + static_cast<size_t>(rank) * kRankBytes; }
  uint64_t* Line(int rank) const { return reinterpret_cast<uint64_t*>(Of(rank)); }
  Counter Posts(int rank) const { return Counter(Line(rank)[0]); }
  Counter Work(int rank) const { return Counter(Line(rank)[1]); }
  std::byte* PostAt(int rank, uint64_t number) const {
    return Of(rank) + kLineBytes + number % 2 * kRoom;
  }

  std::byte* memory_;
  const int rank_;
  const int ranks_;
  uint64_t posted_ = 0;
  int seen_ = 0;            // ranks below have posted as often, ...
  uint64_t seen_post_ = 0;  // ... as this rank had then
};

}  // namespace trireme::comm
