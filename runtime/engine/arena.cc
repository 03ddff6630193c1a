#include "runtime/engine/arena.h"

#include <algorithm>

#include "runtime/base/status_macros.h"

namespace trireme::engine {

absl::StatusOr<Arena> Arena::Map(const v1::StagePlan& stage, tensor::Device& device,
                                 int prefault_threads) {
  Arena arena;
  ASSIGN_OR_RETURN(arena.memory_, device.Allocate(stage.arena_bytes(), prefault_threads));
  const size_t virtual_stages = static_cast<size_t>(std::max(1, stage.first_block_size()));
  for (auto& places : arena.places_) places.resize(virtual_stages);
  for (const v1::Pool& pool : stage.pools()) {
    Place& place = arena.places_[pool.kind()][pool.virtual_stage()];
    if (pool.slots() == 0 || pool.slot_bytes() == 0) continue;
    place = {arena.memory_->base() + pool.offset_bytes(), pool.slot_bytes()};
  }
  return arena;
}

}  // namespace trireme::engine
