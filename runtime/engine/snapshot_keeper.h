// SnapshotKeeper: whose memory the slots of the training state are in, and who is told which
// version is whole in which slot (docs/adr/0024). It outlives the engine, and its memory the rank.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "runtime/tensor/device.h"

namespace trireme::engine {

// What was done up to a version of the state.
struct StagedStep {
  uint64_t step = 0;  // the number of the update that made it; the first is 1
  double loss = 0;    // of that step, as StepReport has it
  int64_t skipped_steps = 0;
};

class SnapshotKeeper {
 public:
  virtual ~SnapshotKeeper() = default;
  // StagePlan.snapshot_bytes of them.
  virtual tensor::HostPages pages() = 0;

  // All on the thread that runs the device's tasks.
  // The slot holds no version from here on: somebody else than a step writes the state.
  virtual void Clear(uint32_t slot) = 0;
  // Before the first store to the slot, when all ranks have staged the version before.
  virtual void Begin(uint32_t slot, uint64_t step) = 0;
  // Behind the last. `sums`: of each piece of the slot (docs/formats/snapshot.md). An error ends
  // the step, and with it the engine.
  virtual absl::Status Stage(uint32_t slot, const StagedStep& step,
                             std::span<const uint64_t> sums) = 0;
};

}  // namespace trireme::engine
