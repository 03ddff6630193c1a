// Passes from a compute order to the instruction list of one pipeline coordinate: transfers, waits,
// slots, gradient reductions while backward still runs, norm, optimizer step, gathers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "runtime/graph/lowering.h"
#include "runtime/plan/bucket_walk.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/schedule.h"
#include "runtime/plan/state_layout.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Hands out the lowest free slot; remembers how many were needed at once.
class SlotPool {
 public:
  uint32_t Acquire();
  void Release(uint32_t slot);
  uint32_t peak() const { return static_cast<uint32_t>(used_.size()); }

 private:
  std::vector<bool> used_;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free_;
};

// Slots needed per virtual stage, the largest over the programs built.
struct SlotCounts {
  uint32_t activation = 0, stash = 0, gradient_stash = 0;
  uint32_t input = 0, output = 0, gradient_in = 0, gradient_out = 0;
  uint32_t stored = 0;
  void Raise(const SlotCounts& other);
};

struct ProgramOptions {
  uint32_t ranks = 1;           // P
  uint32_t rank = 0;            // p
  uint32_t virtual_stages = 1;  // v
  int zero_stage = 0;
  // How many compute instructions later the WAIT of a SEND stands; larger needs more OUTPUT slots
  // but blocks later.
  uint32_t send_lag = 1;
  std::vector<bool> coded_buckets;  // empty: none
  bool code_messages = false;       // of the step
  std::vector<StatePiece> pieces;   // of offloaded optimizer state
  bool swaps_activations = false;
};

class ProgramBuilder {
 public:
  // `stages[k]`: operators of virtual stage k (tensor coordinate 0); all must outlive the builder.
  ProgramBuilder(const ProgramOptions& options, std::vector<const graph::StageOps*> stages,
                 const StateLayout& state);

  v1::Program BuildStep(const std::vector<ComputeStep>& order);
  // Forward instructions of `order` alone, of micro-batches below `micro_batches`.
  v1::Program BuildForward(const std::vector<ComputeStep>& order, uint32_t micro_batches,
                           graph::ForwardUse use);
  // Per virtual stage, over everything built.
  const std::vector<SlotCounts>& slots() const { return slots_; }
  const BucketWalk& walk() const { return walk_; }

 private:
  struct StagePools {
    SlotPool activation, stash, gradient_stash, input, output, gradient_in, gradient_out, stored;
  };
  // Slots held by one (virtual stage, micro-batch).
  struct Held {
    uint32_t activation = 0, stash = 0, gradient_stash = 0;
    uint32_t input = 0, output = 0, gradient_in = 0, gradient_out = 0;
    uint32_t receive_act = 0, receive_grad = 0;  // tickets
    bool is_out = false;  // what forward kept of it is in slot `stored`, or on its way
    uint32_t stored = 0;
    uint32_t swap_in = 0;  // ticket
  };
  struct PendingSend {
    size_t position = 0;
    uint32_t ticket = 0;
    SlotPool* pool = nullptr;
    uint32_t slot = 0;
  };

  struct PendingSwap {
    size_t position = 0;
    uint32_t ticket = 0, virtual_stage = 0;
    uint32_t activation = 0, stash = 0;
  };

  void Begin();
  void NoteOrder(const std::vector<ComputeStep>& order);
  void Walk(const std::vector<ComputeStep>& order);
  void IssueReceive(const ComputeStep& step);
  void WaitReceive(const ComputeStep& step);
  void Forward(const ComputeStep& step);
  void BackwardSteps(const ComputeStep& step);
  // All operators of a step in one instruction, or in one for each block with what ZeRO does around
  // it.
  void AddCompute(v1::InstructionKind kind, const ComputeStep& step, bool by_block);
  // The same, with a REDUCE behind the operators that complete a bucket.
  void LastBackward(v1::InstructionKind kind, const ComputeStep& step);
  void AddPart(v1::InstructionKind kind, const ComputeStep& step, uint32_t begin, uint32_t end);
  uint32_t Reduce(uint32_t bucket);
  uint32_t Gather(uint32_t bucket);
  void SendAfter(const ComputeStep& step, size_t position);
  void WaitSends(size_t position, bool all);
  // Activations of a micro-batch whose backward is still far leave behind its forward, and come
  // back one compute instruction before they are read.
  bool GoesOut(const ComputeStep& step) const;
  void SwapOut(const ComputeStep& step);
  void SwapIn(const ComputeStep& step);
  void WaitSwaps(size_t position, bool all);
  void Finish();
  // NORM, and the STEP of every bucket or piece with what moves around it.
  void Update();
  void UpdateInPieces();
  void GatherUpdated(uint32_t bucket);
  uint32_t SwapPiece(v1::InstructionKind kind, size_t piece);
  void CountSlots();
  void ReduceTriggers();

  static void SetSlots(v1::InstructionKind kind, const Held& held, v1::Instruction& instruction);
  v1::Instruction& Add(v1::InstructionKind kind, const ComputeStep& step);
  void AddWait(uint32_t ticket, const ComputeStep& step);
  bool FirstStage(uint32_t virtual_stage) const { return options_.rank == 0 && virtual_stage == 0; }
  bool LastStage(uint32_t virtual_stage) const {
    return options_.rank + 1 == options_.ranks && virtual_stage + 1 == options_.virtual_stages;
  }
  bool Receives(const ComputeStep& step) const {
    if (step.kind == Compute::kForward) return !FirstStage(step.virtual_stage);
    return step.kind != Compute::kWeightGrad && !LastStage(step.virtual_stage);
  }
  bool Sends(const ComputeStep& step) const {
    if (step.kind == Compute::kForward) return !LastStage(step.virtual_stage);
    return step.kind != Compute::kWeightGrad && !FirstStage(step.virtual_stage);
  }
  // Operators of a step in the program being built.
  uint32_t Length(const ComputeStep& step) const;

  const ProgramOptions options_;
  const std::vector<const graph::StageOps*> stages_;
  const StateLayout& state_;
  // (operators of the list done in its last run, bucket complete then), ascending.
  using Triggers = std::vector<std::pair<uint32_t, uint32_t>>;
  // Of a virtual stage: of I, and of W or B.
  struct StageTriggers {
    Triggers input_grad, final_grad;
  };
  std::vector<StageTriggers> triggers_;
  v1::Program program_;
  std::vector<StagePools> pools_;
  std::map<std::pair<uint32_t, uint32_t>, Held> held_;
  std::deque<PendingSend> sends_;
  std::deque<PendingSwap> swaps_;
  // Position in the order of the I or B of a (virtual stage, micro-batch).
  std::map<std::pair<uint32_t, uint32_t>, size_t> backward_at_;
  // Per virtual stage: position in the order of its last I, and of its last W or B.
  struct LastRuns {
    size_t input_grad = 0, final_grad = 0;
  };
  std::vector<LastRuns> last_runs_;
  std::vector<uint32_t> reduces_;  // tickets
  std::vector<uint32_t> gathers_;  // behind STEPs
  uint32_t next_ticket_ = 1;
  size_t position_ = 0;
  graph::ForwardUse use_ = graph::ForwardUse::kStep;  // of the program being built
  bool training_ = false;
  std::vector<SlotCounts> slots_;
  BucketWalk walk_;
};

}  // namespace trireme::plan
