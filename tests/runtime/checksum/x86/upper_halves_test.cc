// After a sum no upper halves of vector registers are in use.
#include "tests/runtime/checksum/x86/upper_halves.h"

#include <catch2/catch.hpp>
#include <span>
#include <vector>

#include "runtime/checksum/crc32c.h"
#include "tests/skip.h"

namespace trireme::checksum {
namespace {

TEST_CASE("a sum leaves no upper halves of vector registers in use") {
  if (!HasAvx()) TRIREME_SKIP("not here: a processor whose vector registers have upper halves");
  // No zeros, so that a register which a sum has left in use holds something.
  std::vector<std::byte> bytes(65536);
  for (size_t index = 0; index < bytes.size(); ++index) {
    bytes[index] = static_cast<std::byte>(index * 2654435761U >> 13 | 1);
  }
  for (const size_t length : {0, 10, 300, 4096, 65536}) {
    INFO(length << " bytes");
    const std::span<const std::byte> part = std::span(bytes).first(length);
    CheckNoUpperHalvesInUse([&] { Crc32c(part); });
  }
}

}  // namespace
}  // namespace trireme::checksum
