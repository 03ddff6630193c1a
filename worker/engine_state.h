// An engine's state as checkpoints see it: its shards, and the way to its device.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/format/state.h"
#include "runtime/engine/engine.h"

namespace trireme::worker {

// Thread: the engine's. `engine` must outlive it, and it the shards that it adds.
class EngineState final : public checkpoint::StateMover {
 public:
  explicit EngineState(engine::Engine& engine) : engine_(engine) {}

  void Add(std::span<const engine::StateView> views,
           std::vector<checkpoint::StateShard>& shards) const {
    for (const engine::StateView& view : views) {
      shards.push_back({.name = view.name,
                        .kind = view.kind,
                        .dtype = view.dtype,
                        .shape = view.shape,
                        .shard = view.shard,
                        .data = {view.data.get(), view.size_bytes()},
                        .mover = this});
    }
  }
  void Read(const std::byte* from, std::span<std::byte> to) const override {
    engine_.Read(tensor::DevicePointer(const_cast<std::byte*>(from)), to);
  }
  void Write(std::span<const std::byte> from, std::byte* to) const override {
    engine_.Write(from, tensor::DevicePointer(to));
  }

 private:
  engine::Engine& engine_;
};

}  // namespace trireme::worker
