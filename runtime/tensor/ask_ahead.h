// Lines of the cache asked for before they are needed. The processor's own prefetcher ends at each
// page and does not see what is only written: a loop through memory without this waits for up to
// half of its time (docs/performance.md, "asking ahead").
#pragma once

#include <cstdint>

namespace trireme::tensor {

// The line that lies `elements` behind p, to be read. It may lie behind the matrix, and p may be
// null: asking is no access.
template <typename T>
inline __attribute__((always_inline)) void AskAhead(const T* p, int64_t elements) {
  const auto bytes = static_cast<uintptr_t>(elements) * sizeof(T);
  __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(p) + bytes), 0, 3);
}
// The same, to be written.
template <typename T>
inline __attribute__((always_inline)) void AskAheadToWrite(const T* p, int64_t elements) {
  const auto bytes = static_cast<uintptr_t>(elements) * sizeof(T);
  __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(p) + bytes), 1, 3);
}

}  // namespace trireme::tensor
