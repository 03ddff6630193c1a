// Arena: the one allocation of a rank on its device, cut into the pools of the plan. What the plan
// says is what is mapped, to the byte.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/tensor/device.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

class Arena {
 public:
  // ResourceExhausted with the bytes when the device has not so much.
  static absl::StatusOr<Arena> Map(const v1::StagePlan& stage, tensor::Device& device,
                                   int prefault_threads);

  // First byte of a slot; null for an empty pool.
  tensor::DevicePointer Slot(v1::PoolKind kind, uint32_t virtual_stage, uint32_t slot) const {
    const Place& place = places_[kind][virtual_stage];
    return place.base + place.slot_bytes * slot;
  }
  size_t SlotBytes(v1::PoolKind kind, uint32_t virtual_stage) const {
    return places_[kind][virtual_stage].slot_bytes;
  }
  size_t size_bytes() const { return memory_ == nullptr ? 0 : memory_->size_bytes(); }

 private:
  struct Place {
    tensor::DevicePointer base;
    size_t slot_bytes = 0;
  };
  std::unique_ptr<tensor::DeviceMemory> memory_;
  std::array<std::vector<Place>, v1::PoolKind_ARRAYSIZE> places_;
};

}  // namespace trireme::engine
