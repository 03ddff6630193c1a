#include "checkpoint/format/snapshot_pins.h"

#include <algorithm>
#include <atomic>

#include "runtime/base/check.h"

namespace trireme::checkpoint {
namespace {

// Words of the page, which another process reads or writes at the same time.
std::atomic_ref<uint64_t> WordOf(std::byte* page, uint32_t pin) {
  return std::atomic_ref(reinterpret_cast<uint64_t*>(page)[pin]);
}

bool IsPinned(const SlotState& slot, std::span<const uint64_t> pins) {
  return slot.phase == SnapshotPhase::kStaged && slot.version > 0 &&
         std::find(pins.begin(), pins.end(), slot.version) != pins.end();
}

}  // namespace

// Sequentially consistent, as the words of slots are: a rank reads the pins behind its store of a
// word, an agent reads the words behind its store of a pin. So one of the two sees the other.
PinnedVersions ReadPins(ConstSnapshotPage page) {
  // C++20 has no atomic_ref of what is const; a load of a word writes nothing.
  auto* words = const_cast<std::byte*>(page.data());
  PinnedVersions pins;
  for (uint32_t pin = 0; pin < kSnapshotPins; ++pin) {
    pins[pin] = WordOf(words, pin).load(std::memory_order_seq_cst);
  }
  return pins;
}

void SetPin(SnapshotPage page, uint32_t pin, uint64_t version) {
  TRIREME_CHECK(pin < kSnapshotPins);
  WordOf(page.data(), pin).store(version, std::memory_order_seq_cst);
}

uint32_t NextSlot(std::span<const SlotState> slots, uint32_t state, const PinnedVersions& pins) {
  const auto count = static_cast<uint32_t>(slots.size());
  TRIREME_CHECK(count >= 2 && state < count);
  const std::span<const uint64_t> heeded = std::span(pins).first(PinsThatCount(count));
  // An empty slot counts as version 0. What has begun and was never staged is as good as empty.
  const auto age = [&](uint32_t slot) {
    return slots[slot].phase == SnapshotPhase::kStaged ? slots[slot].version : 0;
  };
  uint32_t next = state;
  for (uint32_t offset = 1; offset < count; ++offset) {
    const uint32_t slot = (state + offset) % count;
    if (IsPinned(slots[slot], heeded)) continue;
    if (next == state || age(slot) < age(next)) next = slot;
  }
  TRIREME_CHECK(next != state);
  return next;
}

}  // namespace trireme::checkpoint
