// The sums that guard the pieces of a snapshot (docs/formats/snapshot.md, "Sums"). What updates the
// state keeps them in registers on the way; this is the same in plain code, for who reads a piece.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::checkpoint {

// Of a piece so far: by lane, the sum of its words, and of these sums after each row. No sum of a
// piece of kPieceBytes reaches 2^52, so they are those of integers.
struct LaneSums {
  static constexpr size_t kLanes = 16;
  std::array<uint64_t, kLanes> words{}, sums{};

  bool operator==(const LaneSums&) const = default;
};

// Adds rows of 16 words; the last row and its last word are filled with zeros, so only the last
// call for a piece may have less than whole rows.
void AddRows(std::span<const std::byte> bytes, LaneSums& sums);
// Adds the sums of a run of a piece's words, which AddRows has made of that run alone, to those of
// the piece: runs of any words, by any thread, in any order. `first_word` is the run's first in the
// piece; `rows` are those of the run and `piece_rows` those of the piece, begun ones too.
void AddRun(const LaneSums& run, size_t first_word, size_t rows, size_t piece_rows,
            LaneSums& piece);
// What a piece's entry in the table is.
uint64_t Folded(const LaneSums& sums);
// The entry of a whole piece.
uint64_t SumOfPiece(std::span<const std::byte> piece);

}  // namespace trireme::checkpoint
