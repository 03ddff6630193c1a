#include "runtime/engine/state_slots.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/plan/offload.h"

namespace trireme::engine {

static_assert(plan::kSnapshotPieceBytes == checksum::kSummedBytes);

StateSlots::StateSlots(const v1::Plan& plan, uint32_t pipeline) : count_(plan.snapshot_slots()) {
  if (!on()) return;
  Resume(0);
  for (const v1::Pool& pool : plan.stages(static_cast<int>(pipeline)).pools()) {
    if (!Has(pool.kind())) continue;
    sums_[IndexOf(pool.kind())].resize((pool.slot_bytes() + checksum::kSummedBytes - 1) /
                                       checksum::kSummedBytes);
    first_piece_[IndexOf(pool.kind())] = pool.offset_bytes() / checksum::kSummedBytes;
  }
}

// What is in no pool is zeros.
void StateSlots::FoldInto(std::span<uint64_t> table) const {
  std::fill(table.begin(), table.end(), checksum::Folded({}));
  for (size_t pool = 0; pool < sums_.size(); ++pool) {
    std::transform(sums_[pool].begin(), sums_[pool].end(),
                   table.begin() + static_cast<std::ptrdiff_t>(first_piece_[pool]),
                   checksum::Folded);
  }
}

void StateSlots::Resume(uint32_t slot) {
  state_ = slot;
  next_ = on() ? (slot + 1) % count_ : 0;
}

void StateSlots::set_next(uint32_t slot) {
  TRIREME_CHECK(slot < count_ && slot != state_);
  next_ = slot;
}

void StateSlots::Begin() {
  for (std::vector<checksum::LaneSums>& pool : sums_) {
    std::fill(pool.begin(), pool.end(), checksum::LaneSums{});
  }
}

}  // namespace trireme::engine
