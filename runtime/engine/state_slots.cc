#include "runtime/engine/state_slots.h"

#include <algorithm>

#include "runtime/plan/offload.h"

namespace trireme::engine {

static_assert(plan::kSnapshotPieceBytes == checksum::kSummedBytes);

StateSlots::StateSlots(const v1::Plan& plan, const Arena& arena) : count_(plan.snapshot_slots()) {
  if (!on()) return;
  for (const v1::PoolKind pool : {v1::MASTER, v1::MOMENT1, v1::MOMENT2}) {
    const size_t bytes = arena.SlotBytes(pool, 0);
    sums_[pool == v1::MASTER    ? 0
          : pool == v1::MOMENT1 ? 1
                                : 2]
        .resize((bytes + checksum::kSummedBytes - 1) / checksum::kSummedBytes);
  }
}

void StateSlots::Begin() {
  for (std::vector<checksum::LaneSums>& pool : sums_) {
    std::fill(pool.begin(), pool.end(), checksum::LaneSums{});
  }
}

}  // namespace trireme::engine
