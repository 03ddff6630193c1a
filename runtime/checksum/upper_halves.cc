// One vector store for each instruction set (upper_halves.inc), and the choice among them.
#include "runtime/checksum/upper_halves.h"

#include <cstddef>
#include <cstdint>

namespace trireme::checksum {

inline constexpr size_t kUsedBytes = 64;

}  // namespace trireme::checksum

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/checksum/upper_halves.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the store for every other instruction set; this is the baseline.
#include "runtime/checksum/upper_halves.inc"

namespace trireme::checksum {
namespace {

HWY_EXPORT(UseWholeVectors);

}  // namespace

void ClearUpperHalves() {
  uint8_t bytes[kUsedBytes];
  HWY_DYNAMIC_DISPATCH(UseWholeVectors)(bytes);
}

}  // namespace trireme::checksum
