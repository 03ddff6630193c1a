// Pins (docs/formats/snapshot.md, "Pins"): which versions in a snapshot file whoever keeps parity
// of them wants to stay, and which slot the next step may write. A pin is a wish for a version,
// also of one that is to come: all ranks keep the same one, with no message at that step.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "checkpoint/format/snapshot.h"

namespace trireme::checkpoint {

inline constexpr uint32_t kSnapshotPins = 2;
// Versions that are wanted, 0: none.
using PinnedVersions = std::array<uint64_t, kSnapshotPins>;

// Of a file with so many slots: one is the state, one is written, what is beyond these can be
// pinned. Pins from here on are ignored.
constexpr uint32_t PinsThatCount(uint32_t slots) {
  return slots < 2 + kSnapshotPins ? slots - 2 : kSnapshotPins;
}

// The page of the pins, where it lies: shared memory of one who pins, the node's agent, and one
// who heeds it, the rank. `page` is aligned to 8 bytes and outlives this.
PinnedVersions ReadPins(ConstSnapshotPage page);
// `pin` below kSnapshotPins. Afterwards whoever pins looks at the slots: where none has begun a
// version above `version`, that version is kept, for as long as the pin stands, from the time on
// that it is staged. Else it may be gone, or be going.
void SetPin(SnapshotPage page, uint32_t pin, uint64_t version);

// The slot that the step after the version in slot `state` writes: of those that hold no pinned
// version the one with the oldest, an empty one first. Never `state`. `slots`: 2 to
// kMostSnapshotSlots of them. To be called when the word of the version in `state` has been
// stored, and again for each step: a pin that came too late for one is heeded by the next.
uint32_t NextSlot(std::span<const SlotState> slots, uint32_t state, const PinnedVersions& pins);

}  // namespace trireme::checkpoint
