// CRC32C against RFC 3720, against the definition bit by bit, and in two parts.
#include "runtime/checksum/crc32c.h"

#include <catch2/catch.hpp>
#include <string_view>
#include <vector>

namespace trireme::checksum {
namespace {

using Bytes = std::vector<std::byte>;

Bytes Ramp(int first, int step) {
  Bytes bytes(32);
  for (int i = 0; i < 32; ++i) bytes[i] = std::byte(first + i * step);
  return bytes;
}

// The polynomial 0x1edc6f41 in reflected bits.
uint32_t ByDefinition(std::span<const std::byte> bytes) {
  uint32_t state = ~uint32_t{0};
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ (state & 1 ? 0x82f63b78 : 0);
  }
  return ~state;
}

// Like no pattern that a table or a fold could miss.
Bytes Scrambled(size_t count) {
  Bytes bytes(count);
  uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = std::byte(state >> 24);
  }
  return bytes;
}

TEST_CASE("the vectors of RFC 3720 B.4") {
  CHECK(Crc32c(Bytes(32, std::byte{0})) == 0x8a9136aa);
  CHECK(Crc32c(Bytes(32, std::byte{0xff})) == 0x62a8ab43);
  CHECK(Crc32c(Ramp(0, 1)) == 0x46dd794e);
  CHECK(Crc32c(Ramp(31, -1)) == 0x113fdb5c);
  Bytes read_command(48);
  const uint8_t set[][2] = {{0, 0x01},  {1, 0xc0},  {16, 0x14}, {22, 0x04},
                            {27, 0x14}, {31, 0x18}, {32, 0x28}, {40, 0x02}};
  for (const auto& [at, value] : set) read_command[at] = std::byte{value};
  CHECK(Crc32c(read_command) == 0xd9963a56);
}

TEST_CASE("the check value and nothing at all") {
  const std::string_view digits = "123456789";
  CHECK(Crc32c(std::as_bytes(std::span(digits.data(), digits.size()))) == 0xe3069283);
  CHECK(Crc32c({}) == 0);
  CHECK(Crc32c({}, 0xe3069283) == 0xe3069283);
}

// ISA-L goes through long inputs with wide folds and through the rest with narrower ones.
TEST_CASE("every length and alignment is as defined") {
  const Bytes bytes = Scrambled(1200);
  for (size_t length = 0; length <= 1100; ++length) {
    const auto part = std::span(bytes).subspan(length % 67, length);
    if (Crc32c(part) != ByDefinition(part)) FAIL("of " << length << " bytes");
  }
  const Bytes long_bytes = Scrambled(100003);
  CHECK(Crc32c(long_bytes) == ByDefinition(long_bytes));
}

TEST_CASE("splitting at any byte gives the same sum") {
  const Bytes bytes = Scrambled(2113);
  const std::span<const std::byte> all = bytes;
  const uint32_t whole = Crc32c(all);
  for (size_t at = 0; at <= all.size(); ++at) {
    if (Crc32c(all.subspan(at), Crc32c(all.first(at))) != whole) FAIL("split at " << at);
  }
}

}  // namespace
}  // namespace trireme::checksum
