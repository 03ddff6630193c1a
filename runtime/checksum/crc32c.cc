// ISA-L's crc32_iscsi takes and gives the register before the final inversion.
#include "runtime/checksum/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

#include "runtime/checksum/upper_halves.h"

namespace trireme::checksum {

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    // ISA-L takes an int length and reads through a pointer that is not const.
    const size_t chunk = std::min<size_t>(bytes.size(), size_t{1} << 30);
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(chunk), state);
    bytes = bytes.subspan(chunk);
  }
  ClearUpperHalves();
  return ~state;
}

}  // namespace trireme::checksum
