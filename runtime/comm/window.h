// Window: memory that a group's ranks share: a board, and small slots that stay in the cache. Slot
// (r, q) carries pieces from rank r to rank q; slot (r, r) carries what r has summed to everybody.
// Each has kDepth places and two counters, written by one side each: pieces put by the writer,
// pieces used by each reader. The counters never go back, so consecutive collectives follow each
// other without a barrier.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/comm/board.h"

namespace trireme::comm {

class Window {
 public:
  static constexpr uint64_t kDepth = 2;

  // `memory` is zero-filled, aligned to 64 bytes and mapped by all ranks, possibly at different
  // addresses.
  Window(std::span<std::byte> memory, int rank, int ranks);

  // Bytes of memory for places of at least `piece_bytes`.
  static size_t BytesFor(int ranks, size_t piece_bytes);

  Board& board() { return board_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  size_t piece_bytes() const { return piece_bytes_; }

  // Pieces waiting for this rank in the slot from `writer` to it, or in the slot of `writer`'s
  // sums.
  bool HasPiece(int writer) const { return Waiting(writer, rank_); }
  bool HasSum(int writer) const { return Waiting(writer, writer); }
  // Where the next of them lies; this rank may also write there until it says it has used it.
  std::byte* Piece(int writer) const { return Place(writer, rank_, Used(writer, rank_)); }
  std::byte* Sum(int writer) const { return Place(writer, writer, Used(writer, writer)); }
  void UsedPiece(int writer) { Count(UsedCounter(writer, rank_, rank_)); }
  void UsedSum(int writer) { Count(UsedCounter(writer, writer, rank_)); }

  // Whether this rank may write its next piece for `reader`, or its next sum; where; and that it
  // has.
  bool RoomForPiece(int reader) const {
    return Put(rank_, reader) - UsedBy(rank_, reader, reader) < kDepth;
  }
  bool RoomForSum(int* behind = nullptr) const;
  std::byte* NextPiece(int reader) const { return Place(rank_, reader, Put(rank_, reader)); }
  std::byte* NextSum() const { return Place(rank_, rank_, Put(rank_, rank_)); }
  void PutPiece(int reader) { Count(PutCounter(rank_, reader)); }
  void PutSum() { Count(PutCounter(rank_, rank_)); }

 private:
  static constexpr size_t kLineBytes = 64;  // a counter has a cache line of its own
  using Counter = std::atomic_ref<uint64_t>;

  static size_t FixedBytes(int ranks);  // board and counters, which stand first
  uint64_t* Line(size_t index) const {
    return reinterpret_cast<uint64_t*>(memory_.data() + Board::BytesFor(ranks_) +
                                       index * kLineBytes);
  }
  size_t Pair(int writer, int reader) const {
    return static_cast<size_t>(writer) * static_cast<size_t>(ranks_) + static_cast<size_t>(reader);
  }
  uint64_t* PutCounter(int writer, int reader) const { return Line(Pair(writer, reader)); }
  // Slot (writer, slot_reader) as used by `reader`; the slot of sums has a reader each.
  uint64_t* UsedCounter(int writer, int slot_reader, int reader) const {
    const size_t table = static_cast<size_t>(ranks_) * static_cast<size_t>(ranks_);
    return Line((writer == slot_reader ? 2 * table : table) + Pair(writer, reader));
  }
  uint64_t Put(int writer, int reader) const {
    return Counter(*PutCounter(writer, reader)).load(std::memory_order_acquire);
  }
  uint64_t UsedBy(int writer, int slot_reader, int reader) const {
    return Counter(*UsedCounter(writer, slot_reader, reader)).load(std::memory_order_acquire);
  }
  uint64_t Used(int writer, int slot_reader) const { return UsedBy(writer, slot_reader, rank_); }
  bool Waiting(int writer, int slot_reader) const {
    return Put(writer, slot_reader) != Used(writer, slot_reader);
  }
  // One writer per counter. Release: what was written or read before is over.
  static void Count(uint64_t* counter) {
    Counter(*counter).fetch_add(1, std::memory_order_release);
  }
  std::byte* Place(int writer, int reader, uint64_t number) const {
    return memory_.data() + FixedBytes(ranks_) +
           (Pair(writer, reader) * kDepth + number % kDepth) * piece_bytes_;
  }

  std::span<std::byte> memory_;
  Board board_;
  int rank_;
  int ranks_;
  size_t piece_bytes_;
};

}  // namespace trireme::comm
