// The table of one CRC32C per 64 KiB piece that guards a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::checkpoint {

inline constexpr uint64_t kPieceBytes = 64 * 1024;

// The number of pieces of a file of `bytes` bytes.
constexpr uint64_t PieceCount(uint64_t bytes) {
  return bytes / kPieceBytes + (bytes % kPieceBytes != 0 ? 1 : 0);
}

// Collects the table while a file's bytes pass by in order.
class PieceTable {
 public:
  void Append(std::span<const std::byte> bytes);
  // The table of everything appended, the last piece included.
  std::vector<uint32_t> Finish() const;

 private:
  std::vector<uint32_t> pieces_;
  uint32_t crc_ = 0;
  uint64_t filled_ = 0;  // Bytes of the piece that is not full yet.
};

}  // namespace trireme::checkpoint
