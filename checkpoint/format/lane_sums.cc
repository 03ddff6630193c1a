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
