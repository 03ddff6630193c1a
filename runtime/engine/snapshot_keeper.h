// SnapshotKeeper: whose memory the slots of the training state are in, and who is told which
// version is whole in which slot (docs/adr/0024). It outlives the engine, and its memory the rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/layout/layout.h"
#include "runtime/tensor/device.h"
#include "runtime/tensor/dtype.h"

namespace trireme::engine {

// What was done up to a version of the state.
struct StagedStep {
  uint64_t step = 0;  // the number of the update that made it; the first is 1
  double loss = 0;    // of that step, as StepReport has it
  int64_t skipped_steps = 0;
};

// A piece of a logical tensor of the state, where it lies in each slot.
struct SnapshotPart {
  std::string name;  // as StateView has them
  std::string kind;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  layout::Shard shard;
  uint64_t offset = 0;  // bytes from the slot's first
};

// The slots of one rank, one behind the other. What no part fills is zero in new memory, and stays
// so.
struct SnapshotSlots {
  uint32_t count = 0;
  uint64_t slot_bytes = 0;  // whole huge pages
  std::vector<SnapshotPart> parts;
};

class SnapshotKeeper {
 public:
  virtual ~SnapshotKeeper() = default;
  // count * slot_bytes of memory. Called once by each engine that is made, on all ranks of the job
  // in turn with what else they do together; its error is the engine's.
  virtual absl::StatusOr<tensor::HostPages> Pages(const SnapshotSlots& slots) = 0;
  // Before that: how much of it an attempt before this one has taken already.
  virtual uint64_t BytesThere() const { return 0; }

  // Between two programs, before each step: the slot that the step will write if it updates, any
  // but `state`, which is the state, and those that somebody else reads.
  virtual uint32_t NextSlot(uint32_t state) const = 0;

  // All others on the thread that runs the device's tasks.
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
