#include "checkpoint/format/piece_table.h"

#include <algorithm>

#include "runtime/checksum/crc32c.h"

namespace trireme::checkpoint {

void PieceTable::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t take = std::min<uint64_t>(bytes.size(), kPieceBytes - filled_);
    crc_ = checksum::Crc32c(bytes.first(take), crc_);
    filled_ += take;
    bytes = bytes.subspan(take);
    if (filled_ < kPieceBytes) return;
    pieces_.push_back(crc_);
    crc_ = 0;
    filled_ = 0;
  }
}

std::vector<uint32_t> PieceTable::Finish() const {
  std::vector<uint32_t> pieces = pieces_;
  if (filled_ > 0) pieces.push_back(crc_);
  return pieces;
}

}  // namespace trireme::checkpoint
