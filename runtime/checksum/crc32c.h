// CRC32C (Castagnoli) by ISA-L, for every stream and file that guards itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::checksum {

// The CRC32C of `bytes` appended to what gave `crc` (0 for nothing). "123456789" gives 0xe3069283.
// Leaves the upper halves of vector registers unused: SSE code that follows runs at full speed.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace trireme::checksum
