#include "checkpoint/format/lane_sums.h"

#include <algorithm>
#include <cstring>

#include "runtime/checksum/crc32c.h"

namespace trireme::checkpoint {

void AddRows(std::span<const std::byte> bytes, LaneSums& sums) {
  constexpr size_t kRow = LaneSums::kLanes * sizeof(uint32_t);
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kRow, bytes.size()))) {
    std::array<uint32_t, LaneSums::kLanes> row{};
    std::memcpy(row.data(), bytes.data(), std::min(kRow, bytes.size()));
    for (size_t lane = 0; lane < LaneSums::kLanes; ++lane) {
      sums.words[lane] += row[lane];
      sums.sums[lane] += sums.words[lane];
    }
  }
}

// Word 16 i + j of the run is of lane (first_word + j) mod 16, and i rows below that lane's first.
void AddRun(const LaneSums& run, size_t first_word, size_t rows, size_t piece_rows,
            LaneSums& piece) {
  for (size_t lane = 0; lane < LaneSums::kLanes; ++lane) {
    const size_t word = first_word + lane;
    const size_t into = word % LaneSums::kLanes;
    // Below 0 where a lane has no word in the run's last row: the sum is right modulo 2^64.
    const uint64_t below = uint64_t{piece_rows} - word / LaneSums::kLanes - rows;
    piece.words[into] += run.words[lane];
    piece.sums[into] += run.sums[lane] + below * run.words[lane];
  }
}

uint64_t Folded(const LaneSums& sums) {
  const auto crc = [](const auto& lanes) -> uint64_t {
    return checksum::Crc32c(std::as_bytes(std::span(lanes)));
  };
  return crc(sums.words) | crc(sums.sums) << 32;
}

uint64_t SumOfPiece(std::span<const std::byte> piece) {
  LaneSums sums;
  AddRows(piece, sums);
  return Folded(sums);
}

}  // namespace trireme::checkpoint
