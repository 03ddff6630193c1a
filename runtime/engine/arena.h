// Arena: the memory of a rank on its device, cut into the pools of the plan. What the plan says is
// what is mapped, to the byte. It is one allocation, or two: the gradients that replicas sum may
// lie apart, where the other replicas reach them. Pools of other places (plan.proto) are found here
// too, in the memory that those give.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/tensor/device.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::engine {

class Arena {
 public:
  struct Options {
    int prefault_threads = 0;
    std::unique_ptr<tensor::DeviceMemory> gradients;  // of GradientBytes; null: with all else
    // By PoolPlace, of the bytes that the plan says; null where it has none there.
    std::array<std::unique_ptr<tensor::DeviceMemory>, v1::PoolPlace_ARRAYSIZE> places;
    // What LetGo does; empty: nothing.
    std::function<void(tensor::DevicePointer at, size_t bytes)> let_go;
  };
  // ResourceExhausted with the bytes when the device has not so much.
  static absl::StatusOr<Arena> Map(const v1::StagePlan& stage, tensor::Device& device,
                                   Options options);
  // In whole pages.
  static size_t GradientBytes(const v1::StagePlan& stage);

  // First byte of a slot; null for an empty pool.
  tensor::DevicePointer Slot(v1::PoolKind kind, uint32_t virtual_stage, uint32_t slot) const {
    const Place& place = places_[kind][virtual_stage];
    return place.base + place.stride * slot;
  }
  size_t SlotBytes(v1::PoolKind kind, uint32_t virtual_stage) const {
    return places_[kind][virtual_stage].slot_bytes;
  }
  // What the device has given for the pools of a place, whatever the plan says.
  uint64_t AllocatedBytes(v1::PoolPlace place) const;
  // Of memory of any place, after a look at it there: whoever passes over much of it says so every
  // kPassBytes, lest all that lies in a file be in the machine's memory at once. Any thread.
  void LetGo(tensor::DevicePointer at, size_t bytes) const {
    if (let_go_) let_go_(at, bytes);
  }
  static constexpr size_t kPassBytes = size_t{4} << 20;

 private:
  struct Place {
    tensor::DevicePointer base;
    size_t slot_bytes = 0;
    size_t stride = 0;  // from a slot to the next
  };
  std::unique_ptr<tensor::DeviceMemory> memory_, gradients_;
  std::array<std::unique_ptr<tensor::DeviceMemory>, v1::PoolPlace_ARRAYSIZE> elsewhere_;
  std::function<void(tensor::DevicePointer, size_t)> let_go_;
  std::array<std::vector<Place>, v1::PoolKind_ARRAYSIZE> places_;
};

}  // namespace trireme::engine
