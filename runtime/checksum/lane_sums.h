// The sums that guard the pieces of a snapshot (docs/formats/snapshot.md, "Sums"). What updates the
// state (runtime/optim) keeps them in registers on the way; this is the same in plain code, for who
// reads a piece, and what adds up the sums of its parts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::checksum {

// Of a piece so far: by lane, the sum of its words, and of these sums after each row. No sum of a
// piece of kSummedBytes reaches 2^52, so they are those of integers.
struct LaneSums {
  static constexpr size_t kLanes = 16;
  static constexpr size_t kRowBytes = kLanes * sizeof(uint32_t);
  std::array<uint64_t, kLanes> words{}, sums{};

  bool operator==(const LaneSums&) const = default;
};
// Of a snapshot's piece.
inline constexpr size_t kSummedBytes = 65536;

// Adds rows of 16 words; the last row and its last word are filled with zeros, so only the last
// call for a piece may have less than whole rows.
void AddRows(std::span<const std::byte> bytes, LaneSums& sums);

// Of a run of a piece's words: its first word in the piece, its rows and those of the piece, begun
// ones too.
struct RunPlace {
  size_t first_word = 0, rows = 0, piece_rows = 0;
};
// Adds the sums of a run, which AddRows has made of that run alone, to those of its piece: runs of
// any words, in any order.
void AddRun(const LaneSums& run, const RunPlace& place, LaneSums& piece);
// The same where other threads add runs of theirs meanwhile.
void AddRunBesideOthers(const LaneSums& run, const RunPlace& place, LaneSums& piece);

// What a piece's entry in the table is.
uint64_t Folded(const LaneSums& sums);
// The entry of a whole piece.
uint64_t SumOfPiece(std::span<const std::byte> piece);

}  // namespace trireme::checksum
