// Changed streams whose checksums are right again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/checksum/crc32c.h"

namespace trireme::compress {

// Sets the checksums as a writer would, so that what is behind them is reached.
inline void Reseal(std::vector<std::byte>* stream) {
  uint32_t pieces = 0;
  std::memcpy(&pieces, stream->data() + 56, 4);
  size_t at = 64 + size_t{8} * pieces;
  for (uint32_t piece = 0; piece < pieces && at <= stream->size(); ++piece) {
    uint32_t bytes = 0;
    std::memcpy(&bytes, stream->data() + 64 + size_t{8} * piece, 4);
    if (bytes > stream->size() - at) return;
    const uint32_t crc = checksum::Crc32c(std::span(*stream).subspan(at, bytes));
    std::memcpy(stream->data() + 68 + size_t{8} * piece, &crc, 4);
    at += bytes;
  }
  uint32_t crc = checksum::Crc32c(std::span(*stream).first(60));
  crc = checksum::Crc32c(std::span(*stream).subspan(64, size_t{8} * pieces), crc);
  std::memcpy(stream->data() + 60, &crc, 4);
}

}  // namespace trireme::compress
