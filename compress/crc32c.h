// CRC32C (Castagnoli) by ISA-L.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::compress {

// The CRC32C of `bytes` appended to what gave `crc` (0 for nothing). "123456789" gives 0xe3069283.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace trireme::compress
