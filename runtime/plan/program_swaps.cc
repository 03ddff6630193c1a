// What a program moves out of the arena and back: activations around the compute instructions,
// optimizer state around the STEPs.
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/plan/program_builder.h"

namespace trireme::plan {

namespace {

// Pieces that are under way to the arena while another is updated.
constexpr size_t kAhead = 2;

}  // namespace

bool ProgramBuilder::GoesOut(const ComputeStep& step) const {
  const graph::StageOps& ops = *stages_[step.virtual_stage];
  // Where layers are recomputed from what was received, nothing is kept.
  const bool keeps = ops.activation_bytes > 0 || ops.stash_bytes > 0;
  if (!options_.swaps_activations || !keeps) return false;
  const auto backward = backward_at_.find({step.virtual_stage, step.micro_batch});
  return backward != backward_at_.end() && backward->second > position_ + kNearBackward;
}

void ProgramBuilder::SwapOut(const ComputeStep& step) {
  Held& held = held_[{step.virtual_stage, step.micro_batch}];
  held.is_out = true;
  held.stored = pools_[step.virtual_stage].stored.Acquire();
  v1::Instruction& swap = Add(v1::SWAP_OUT, step);
  swap.set_pool(v1::ACTIVATION);
  swap.set_ticket(next_ticket_);
  swaps_.push_back({.position = position_,
                    .ticket = next_ticket_++,
                    .virtual_stage = step.virtual_stage,
                    .activation = held.activation,
                    .stash = held.stash});
}

void ProgramBuilder::SwapIn(const ComputeStep& step) {
  if (step.kind != Compute::kInputGrad && step.kind != Compute::kBackward) return;
  Held& held = held_[{step.virtual_stage, step.micro_batch}];
  if (!std::exchange(held.is_out, false)) return;
  StagePools& pools = pools_[step.virtual_stage];
  held.activation = pools.activation.Acquire();
  held.stash = pools.stash.Acquire();
  held.swap_in = next_ticket_++;
  v1::Instruction& swap = Add(v1::SWAP_IN, step);
  swap.set_pool(v1::ACTIVATION);
  swap.set_ticket(held.swap_in);
}

void ProgramBuilder::WaitSwaps(size_t position, bool all) {
  while (!swaps_.empty() && (all || swaps_.front().position < position)) {
    const PendingSwap& swap = swaps_.front();
    AddWait(swap.ticket, {});
    pools_[swap.virtual_stage].activation.Release(swap.activation);
    pools_[swap.virtual_stage].stash.Release(swap.stash);
    swaps_.pop_front();
  }
}

uint32_t ProgramBuilder::SwapPiece(v1::InstructionKind kind, size_t index) {
  const StatePiece& piece = options_.pieces[index];
  v1::Instruction& swap = Add(kind, {});
  swap.set_pool(v1::UPDATE);
  swap.set_bucket(piece.bucket);
  swap.set_piece(piece.piece);
  swap.set_update(static_cast<uint32_t>(index % kUpdateSlots));
  swap.set_ticket(next_ticket_);
  return next_ticket_++;
}

// The first pieces come while the ranks agree on the norm.
void ProgramBuilder::UpdateInPieces() {
  const size_t count = options_.pieces.size();
  std::vector<uint32_t> in, out;
  while (in.size() < std::min(kAhead, count)) in.push_back(SwapPiece(v1::SWAP_IN, in.size()));
  Add(v1::NORM, {});
  for (size_t index = 0; index < count; ++index) {
    if (in.size() < count) {
      // Whatever was in its slot has gone.
      if (in.size() >= kUpdateSlots) AddWait(out[in.size() - kUpdateSlots], {});
      in.push_back(SwapPiece(v1::SWAP_IN, in.size()));
    }
    AddWait(in[index], {});
    const StatePiece& piece = options_.pieces[index];
    v1::Instruction& step = Add(v1::STEP, {});
    step.set_bucket(piece.bucket);
    step.set_piece(piece.piece);
    step.set_update(static_cast<uint32_t>(index % kUpdateSlots));
    out.push_back(SwapPiece(v1::SWAP_OUT, index));
    const bool last = index + 1 == count || options_.pieces[index + 1].bucket != piece.bucket;
    if (last) GatherUpdated(piece.bucket);
  }
  for (size_t index = count > kUpdateSlots ? count - kUpdateSlots : 0; index < count; ++index) {
    AddWait(out[index], {});
  }
}

void ProgramBuilder::GatherUpdated(uint32_t bucket) {
  if (options_.zero_stage == 1 || options_.zero_stage == 2) gathers_.push_back(Gather(bucket));
}

}  // namespace trireme::plan
