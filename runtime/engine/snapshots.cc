// Versions of the state in slots that outlive the rank: when one begins, when it is whole, and
// going on from one.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/state_layout.h"

namespace trireme::engine {

absl::StatusOr<std::unique_ptr<tensor::DeviceMemory>> Engine::Impl::SnapshotMemory(int threads) {
  const uint64_t bytes = stage().snapshot_bytes();
  const uint64_t slot_bytes = plan::SnapshotSlotBytes(plan_, stage());
  snapshot_sums_.resize(slot_bytes / plan::kSnapshotPieceBytes);
  if (options_.snapshots == nullptr) return device_->Allocate(bytes, threads);
  ASSIGN_OR_RETURN(tensor::HostPages pages,
                   options_.snapshots->Pages({.count = plan_.snapshot_slots(),
                                              .slot_bytes = slot_bytes,
                                              .parts = state_->SnapshotParts(stage())}));
  if (pages.bytes.size() == bytes) return device_->Adopt(std::move(pages));
  return absl::FailedPreconditionError(absl::StrCat(
      "the plan has ", bytes, " bytes of snapshots, the memory for them ", pages.bytes.size()));
}

// On the device, of a step that updates.
void Engine::Impl::BeginSnapshot() {
  StateSlots& slots = state_->slots();
  if (options_.snapshots != nullptr) options_.snapshots->Begin(slots.next(), step_ + 1);
  slots.Begin();
}

// Behind all STEPs. Where NORM has left the step out there is nothing to stage.
void Engine::Impl::StageSnapshot() {
  if (options_.snapshots == nullptr || !context_.training) return;
  stream_->Issue(tensor::Task([this] {
    const StepBlock& block = *this->block();
    if (block.updates == 0) return;
    StateSlots& slots = state_->slots();
    slots.FoldInto(snapshot_sums_);
    const double counted = std::max(1.0, block.norm[kCounted]);
    staged_ = options_.snapshots->Stage(slots.next(),
                                        {.step = step_ + 1,
                                         .loss = block.norm[kLossSum] / counted,
                                         .skipped_steps = state_->skipped_steps()},
                                        snapshot_sums_);
  }));
}

absl::Status Engine::Impl::ResumeFrom(uint32_t slot) {
  if (const uint32_t slots = state_->slots().count(); slot >= slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", slot, ": the plan has ", base::Counted(slots, "snapshot slot")));
  }
  state_->slots().Resume(slot);
  OnDevice([this] { state_->DeriveWeights(); });
  // What others update: as a step ends with it. Under ZeRO-3 each step begins with it.
  const int zero = plan::ZeroStage(plan_);
  if (groups_.data == nullptr || zero < 1 || zero > 2) return absl::OkStatus();
  trace_.Clear();
  for (const v1::Instruction& instruction : stage().step().instructions()) {
    if (instruction.kind() != v1::GATHER) continue;
    WaitTraced(*groups_.data, Gather(instruction), ProgramEnd(agreement_->SinceMet()));
    stream_->Synchronize();
    RETURN_IF_ERROR(groups_.status());
  }
  return absl::OkStatus();
}

}  // namespace trireme::engine
