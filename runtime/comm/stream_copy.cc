#include "runtime/comm/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/comm/stream_copy.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loop for every other instruction set; this is the baseline.
#include "runtime/comm/stream_copy.inc"

namespace trireme::comm {
namespace {

HWY_EXPORT(CopyLines);

constexpr size_t kStreamLineBytes = 64;

}  // namespace

void StreamCopy(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t past = reinterpret_cast<uintptr_t>(to) % kStreamLineBytes;
  const size_t head = std::min(bytes, past == 0 ? 0 : kStreamLineBytes - past);
  const size_t lines = (bytes - head) / kStreamLineBytes * kStreamLineBytes;
  std::memcpy(to, from, head);
  HWY_DYNAMIC_DISPATCH(CopyLines)(to + head, from + head, lines);
  std::memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

}  // namespace trireme::comm
