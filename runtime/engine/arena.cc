#include "runtime/engine/arena.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace trireme::engine {

namespace {

// On which the plan begins its pools.
constexpr uint64_t kPageBytes = 4096;

// Bytes of the plan's arena that the gradients take, up to where the next pool may begin.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// What REDUCE sums: all gradients, or under ZeRO-2 and ZeRO-3 those of the buckets at hand.
v1::PoolKind SummedPool(const v1::StagePlan& stage) {
  const auto& pools = stage.pools();
  const bool at_hand = std::any_of(pools.begin(), pools.end(), [](const v1::Pool& pool) {
    return pool.kind() == v1::PARTIAL && pool.slot_bytes() > 0;
  });
  return at_hand ? v1::PARTIAL : v1::GRADIENT;
}

Range GradientsOf(const v1::StagePlan& stage) {
  const v1::PoolKind summed = SummedPool(stage);
  for (const v1::Pool& pool : stage.pools()) {
    if (pool.kind() != summed) continue;
    const uint64_t bytes = pool.slot_bytes() * pool.slots();
    return {pool.offset_bytes(),
            pool.offset_bytes() + (bytes + kPageBytes - 1) / kPageBytes * kPageBytes};
  }
  return {};
}

}  // namespace

size_t Arena::GradientBytes(const v1::StagePlan& stage) {
  const Range gradients = GradientsOf(stage);
  return gradients.end - gradients.begin;
}

absl::StatusOr<Arena> Arena::Map(const v1::StagePlan& stage, tensor::Device& device,
                                 Options options) {
  Arena arena;
  arena.gradients_ = std::move(options.gradients);
  arena.elsewhere_ = std::move(options.places);
  arena.let_go_ = std::move(options.let_go);
  const bool apart = arena.gradients_ != nullptr;
  const Range gradients = apart ? GradientsOf(stage) : Range{};
  TRIREME_CHECK(!apart || arena.gradients_->size_bytes() == GradientBytes(stage));
  // Where byte `offset` of the plan's arena lies in an allocation without the gradients.
  const auto without_gradients = [&](uint64_t offset) {
    if (offset <= gradients.begin) return offset;
    return gradients.begin + (offset > gradients.end ? offset - gradients.end : 0);
  };
  ASSIGN_OR_RETURN(arena.memory_, device.Allocate(without_gradients(stage.arena_bytes()),
                                                  options.prefault_threads));
  const size_t virtual_stages = static_cast<size_t>(std::max(1, stage.first_block_size()));
  for (auto& places : arena.places_) places.resize(virtual_stages);
  for (const v1::Pool& pool : stage.pools()) {
    Place& place = arena.places_[pool.kind()][pool.virtual_stage()];
    if (pool.slots() == 0 || pool.slot_bytes() == 0) continue;
    place.slot_bytes = place.stride = pool.slot_bytes();
    if (pool.place() == v1::SNAPSHOT) place.stride = stage.snapshot_bytes() / pool.slots();
    if (pool.place() != v1::ARENA) {
      place.base = arena.elsewhere_[pool.place()]->base() + pool.offset_bytes();
      continue;
    }
    place.base = apart && pool.kind() == SummedPool(stage)
                     ? arena.gradients_->base()
                     : arena.memory_->base() + without_gradients(pool.offset_bytes());
  }
  return arena;
}

uint64_t Arena::AllocatedBytes(v1::PoolPlace place) const {
  const auto bytes = [](const std::unique_ptr<tensor::DeviceMemory>& memory) {
    return memory == nullptr ? 0 : uint64_t{memory->size_bytes()};
  };
  return place == v1::ARENA ? bytes(memory_) + bytes(gradients_) : bytes(elsewhere_[place]);
}

}  // namespace trireme::engine
