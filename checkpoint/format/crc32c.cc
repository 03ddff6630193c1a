// CRC32C by ISA-L, whose crc32_iscsi takes and gives the register before the final inversion.
#include "checkpoint/format/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace trireme::checkpoint {

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    // ISA-L takes an int length and reads through a pointer that is not const.
    const size_t chunk = std::min<size_t>(bytes.size(), size_t{1} << 30);
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(chunk), state);
    bytes = bytes.subspan(chunk);
  }
  return ~state;
}

void PieceTable::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t take = std::min<uint64_t>(bytes.size(), kPieceBytes - filled_);
    crc_ = Crc32c(bytes.first(take), crc_);
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
