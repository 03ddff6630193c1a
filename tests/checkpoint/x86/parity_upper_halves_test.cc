// After a sum of parity no upper halves of vector registers are in use, though ISA-L leaves them
// so.
#include <catch2/catch.hpp>
#include <vector>

#include "checkpoint/format/parity.h"
#include "tests/runtime/checksum/x86/upper_halves.h"
#include "tests/skip.h"

namespace trireme::checkpoint {
namespace {

TEST_CASE("parity: a sum leaves no upper halves of vector registers in use") {
  if (!checksum::HasAvx()) {
    TRIREME_SKIP("not here: a processor whose vector registers have upper halves");
  }
  const auto group = ParityGroup::Make({5, 2}, 200000);
  REQUIRE(group.ok());
  std::vector<std::byte> parity(group->parity_bytes());
  for (const uint64_t length : {1, 100, 4096, 65536}) {
    INFO(length << " bytes");
    const std::vector<std::byte> piece(length, std::byte{0xa5});
    const Contribution to = group->Contributions(1, {0, length}).back();
    checksum::CheckNoUpperHalvesInUse([&] { group->Add(to, piece, parity); });
  }
}

}  // namespace
}  // namespace trireme::checkpoint
