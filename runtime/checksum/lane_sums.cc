#include "runtime/checksum/lane_sums.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/checksum/crc32c.h"

namespace trireme::checksum {
namespace {

// Word 16 i + j of the run is of lane (first_word + j) mod 16, and i rows below that lane's first.
template <typename Add>
void ForEachLane(const LaneSums& run, const RunPlace& place, LaneSums& piece, Add add) {
  for (size_t lane = 0; lane < LaneSums::kLanes; ++lane) {
    const size_t word = place.first_word + lane;
    const size_t into = word % LaneSums::kLanes;
    // Below 0 where a lane has no word in the run's last row: the sum is right modulo 2^64.
    const uint64_t below = uint64_t{place.piece_rows} - word / LaneSums::kLanes - place.rows;
    add(piece.words[into], run.words[lane]);
    add(piece.sums[into], run.sums[lane] + below * run.words[lane]);
  }
}

}  // namespace

void AddRows(std::span<const std::byte> bytes, LaneSums& sums) {
  constexpr size_t kRow = LaneSums::kRowBytes;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kRow, bytes.size()))) {
    std::array<uint32_t, LaneSums::kLanes> row{};
    std::memcpy(row.data(), bytes.data(), std::min(kRow, bytes.size()));
    for (size_t lane = 0; lane < LaneSums::kLanes; ++lane) {
      sums.words[lane] += row[lane];
      sums.sums[lane] += sums.words[lane];
    }
  }
}

void AddRun(const LaneSums& run, const RunPlace& place, LaneSums& piece) {
  ForEachLane(run, place, piece, [](uint64_t& sum, uint64_t value) { sum += value; });
}

void AddRunBesideOthers(const LaneSums& run, const RunPlace& place, LaneSums& piece) {
  ForEachLane(run, place, piece, [](uint64_t& sum, uint64_t value) {
    std::atomic_ref(sum).fetch_add(value, std::memory_order_relaxed);
  });
}

uint64_t Folded(const LaneSums& sums) {
  const auto crc = [](const auto& lanes) -> uint64_t {
    return Crc32c(std::as_bytes(std::span(lanes)));
  };
  return crc(sums.words) | crc(sums.sums) << 32;
}

uint64_t SumOfPiece(std::span<const std::byte> piece) {
  LaneSums sums;
  AddRows(piece, sums);
  return Folded(sums);
}

}  // namespace trireme::checksum
